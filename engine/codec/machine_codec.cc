#include "engine/codec/machine_codec.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/codec/message_parts.h"
#include "kernels/base/status_macros.h"

namespace annulus::codec {
namespace {

namespace wire = internal::v1;

constexpr int kKinds = static_cast<int>(Node::Kind::kRepeat) + 1;
// Of a byte for each node, above its kind.
constexpr uint8_t kRepeatsPlain = 0x10;
constexpr uint8_t kTakesPlain = 0x20;
constexpr uint8_t kThinks = 0x40;
constexpr uint8_t kKindBits = 0x0F;

absl::Status CheckNode(const Node& node, const Machine& machine) {
  const auto nodes = static_cast<int64_t>(machine.nodes.size());
  switch (node.kind) {
    case Node::Kind::kReturn:
      return absl::OkStatus();
    case Node::Kind::kBytes:
    case Node::Kind::kSplit: {
      const size_t parts =
          node.kind == Node::Kind::kBytes ? machine.edges.size() : machine.targets.size();
      ANNULUS_RETURN_IF_ERROR(
          Within("the end of a node's parts", node.end, 0, static_cast<int64_t>(parts) + 1));
      return Within("the first of a node's parts", node.begin, 0, int64_t{node.end} + 1);
    }
    case Node::Kind::kCall:
      ANNULUS_RETURN_IF_ERROR(
          Within("the rule", node.rule, 0, static_cast<int64_t>(machine.rules.size())));
      return Within("the next node", node.next, 0, nodes);
    case Node::Kind::kRepeat:
      ANNULUS_RETURN_IF_ERROR(Within("the body of a loop", node.body, 0, nodes));
      return Within("the next node", node.next, 0, nodes);
  }
  return absl::OkStatus();
}

absl::Status CheckMachine(const Machine& machine) {
  const auto nodes = static_cast<int64_t>(machine.nodes.size());
  ANNULUS_RETURN_IF_ERROR(Within("the start of a machine", machine.start, 0, nodes));
  if (machine.nodes[kReturnNode].kind != Node::Kind::kReturn) {
    return Wrong("a machine whose first node does not return");
  }
  for (const Node& node : machine.nodes) ANNULUS_RETURN_IF_ERROR(CheckNode(node, machine));
  for (const ByteEdge& edge : machine.edges) {
    ANNULUS_RETURN_IF_ERROR(Within("the target of an edge", edge.target, 0, nodes));
  }
  for (const std::vector<NodeId>* ids : {&machine.targets, &machine.rules}) {
    for (const NodeId id : *ids) ANNULUS_RETURN_IF_ERROR(Within("the node", id, 0, nodes));
  }
  const auto classes = static_cast<int64_t>(machine.samples.size());
  for (const uint8_t byte_class : machine.class_of) {
    ANNULUS_RETURN_IF_ERROR(Within("the class of a byte", byte_class, 0, classes));
  }
  return absl::OkStatus();
}

std::string BytesOf(const std::bitset<256>& bits) {
  std::string bytes(256, '\0');
  for (size_t bit = 0; bit < 256; ++bit) bytes[bit] = bits.test(bit) ? 1 : 0;
  return bytes;
}

}  // namespace

wire::Machine MachineMessage(const Machine& machine) {
  wire::Machine message;
  for (const Node& node : machine.nodes) {
    const int flags = (node.repeats_plain ? kRepeatsPlain : 0) |
                      (node.takes_plain ? kTakesPlain : 0) | (node.thinks ? kThinks : 0);
    message.mutable_kinds()->push_back(static_cast<char>(static_cast<int>(node.kind) | flags));
    message.add_begins(node.begin);
    message.add_ends(node.end);
    message.add_rule_ids(node.rule);
    message.add_bodies(node.body);
    message.add_nexts(node.next);
    message.add_leasts(node.least);
    message.add_mosts(node.most);
  }
  for (const ByteEdge& edge : machine.edges) {
    message.mutable_edge_firsts()->push_back(static_cast<char>(edge.first));
    message.mutable_edge_lasts()->push_back(static_cast<char>(edge.last));
    message.add_edge_targets(edge.target);
  }
  Put(machine.targets, message.mutable_targets());
  Put(machine.rules, message.mutable_rules());
  message.set_start(machine.start);
  message.set_thinking_tokens(machine.thinking_tokens);
  Put(machine.thinking_end, message.mutable_thinking_end());
  message.set_class_of(std::string(machine.class_of.begin(), machine.class_of.end()));
  message.set_samples(std::string(machine.samples.begin(), machine.samples.end()));
  message.set_literal_bytes(BytesOf(machine.literal_bytes));
  return message;
}

absl::StatusOr<Machine> ReadMachine(const wire::Machine& message) {
  Machine machine;
  const auto nodes = static_cast<int>(message.kinds().size());
  for (const int length :
       {message.begins_size(), message.ends_size(), message.rule_ids_size(), message.bodies_size(),
        message.nexts_size(), message.leasts_size(), message.mosts_size()}) {
    if (length != nodes) return Wrong("a machine whose lists differ in length");
  }
  const auto edges = static_cast<size_t>(message.edge_targets_size());
  if (nodes == 0 || message.edge_firsts().size() != edges || message.edge_lasts().size() != edges ||
      message.class_of().size() != 256 || message.samples().size() > 256 ||
      message.literal_bytes().size() != 256) {
    return Wrong("a machine whose lists have a wrong length");
  }
  for (int i = 0; i < nodes; ++i) {
    const auto kind = static_cast<uint8_t>(message.kinds()[static_cast<size_t>(i)]);
    ANNULUS_RETURN_IF_ERROR(Within("the kind of a node", kind & kKindBits, 0, kKinds));
    machine.nodes.push_back({.kind = static_cast<Node::Kind>(kind & kKindBits),
                             .repeats_plain = (kind & kRepeatsPlain) != 0,
                             .takes_plain = (kind & kTakesPlain) != 0,
                             .thinks = (kind & kThinks) != 0,
                             .begin = message.begins(i),
                             .end = message.ends(i),
                             .rule = message.rule_ids(i),
                             .body = message.bodies(i),
                             .next = message.nexts(i),
                             .least = message.leasts(i),
                             .most = message.mosts(i)});
  }
  for (size_t i = 0; i < edges; ++i) {
    machine.edges.push_back({static_cast<uint8_t>(message.edge_firsts()[i]),
                             static_cast<uint8_t>(message.edge_lasts()[i]),
                             message.edge_targets(static_cast<int>(i))});
  }
  machine.targets = Take(message.targets());
  machine.rules = Take(message.rules());
  machine.start = message.start();
  machine.thinking_tokens = message.thinking_tokens();
  machine.thinking_end = Take(message.thinking_end());
  std::copy(message.class_of().begin(), message.class_of().end(), machine.class_of.begin());
  machine.samples.assign(message.samples().begin(), message.samples().end());
  for (size_t bit = 0; bit < 256; ++bit) {
    machine.literal_bytes.set(bit, message.literal_bytes()[bit] != 0);
  }
  ANNULUS_RETURN_IF_ERROR(CheckMachine(machine));
  return machine;
}

}  // namespace annulus::codec
