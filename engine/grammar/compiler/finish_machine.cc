#include "engine/grammar/compiler/finish_machine.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using NodeKind = Node::Kind;

// Splits and shortens edges so that only bytes of `bytes` remain.
void RemoveBytes(const std::bitset<256>& bytes, Machine* machine) {
  std::vector<ByteEdge> kept;
  for (Node& node : machine->nodes) {
    if (node.kind != NodeKind::kBytes) continue;
    const auto begin = static_cast<uint32_t>(kept.size());
    for (uint32_t i = node.begin; i < node.end; ++i) {
      const ByteEdge& edge = machine->edges[i];
      bool open = false;  // the last kept edge can be extended
      for (int byte = edge.first; byte <= edge.last; ++byte) {
        if (!bytes.test(static_cast<size_t>(byte))) {
          open = false;
          continue;
        }
        if (!open) {
          kept.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), edge.target});
        }
        kept.back().last = static_cast<uint8_t>(byte);
        open = true;
      }
    }
    node.begin = begin;
    node.end = static_cast<uint32_t>(kept.size());
  }
  machine->edges = std::move(kept);
}

// Which nodes lead to the end of their rule or loop.
class Productive {
 public:
  Productive(Machine* machine, WorkMeter* work)
      : machine_(*machine), work_(*work), ends_(machine->nodes.size()) {}

  absl::Status Find() {
    ends_[kReturnNode] = true;
    // Most nodes lead to earlier ones, so one pass settles nearly all non-recursive nodes.
    for (bool changed = true; changed;) {
      changed = false;
      for (NodeId id = 0; id < machine_.nodes.size(); ++id) {
        if (ends_[id]) continue;
        ANNULUS_RETURN_IF_ERROR(work_.Step());
        ends_[id] = Ends(machine_.nodes[id]);
        changed = changed || ends_[id];
      }
    }
    return absl::OkStatus();
  }

  bool start() const { return ends_[machine_.start]; }

  void Trim() {
    for (Node& node : machine_.nodes) {
      if (node.kind == NodeKind::kBytes) {
        node.end = Keep(&machine_.edges, node, [](const ByteEdge& edge) { return edge.target; });
      } else if (node.kind == NodeKind::kSplit) {
        node.end = Keep(&machine_.targets, node, [](NodeId target) { return target; });
      } else if (node.kind == NodeKind::kRepeat && !ends_[node.body]) {
        node.most = 0;
      }
    }
  }

 private:
  template <typename T, typename Target>
  uint32_t Keep(std::vector<T>* parts, const Node& node, Target target) const {
    const auto begin = parts->begin() + node.begin;
    const auto end = std::remove_if(begin, parts->begin() + node.end,
                                    [&](const T& part) { return !ends_[target(part)]; });
    return node.begin + static_cast<uint32_t>(end - begin);
  }

  bool Ends(const Node& node) const {
    switch (node.kind) {
      case NodeKind::kReturn:
        return true;
      case NodeKind::kBytes:
        return std::any_of(machine_.edges.begin() + node.begin, machine_.edges.begin() + node.end,
                           [&](const ByteEdge& edge) { return ends_[edge.target]; });
      case NodeKind::kSplit:
        return std::any_of(machine_.targets.begin() + node.begin,
                           machine_.targets.begin() + node.end,
                           [&](NodeId target) { return ends_[target]; });
      case NodeKind::kCall:
        return ends_[machine_.rules[node.rule]] && ends_[node.next];
      case NodeKind::kRepeat:
        return ends_[node.next] && (node.least == 0 || ends_[node.body]);
    }
    return false;
  }

  Machine& machine_;
  WorkMeter& work_;
  std::vector<bool> ends_;
};

void SetClasses(Machine* machine) {
  std::bitset<257> begins;
  begins.set(0);
  for (Node& node : machine->nodes) {
    if (node.kind != NodeKind::kBytes) continue;
    for (uint32_t i = node.begin; i < node.end; ++i) {
      const ByteEdge& edge = machine->edges[i];
      begins.set(edge.first);
      begins.set(edge.last + 1u);
      for (int byte = edge.first; byte <= edge.last && !node.takes_plain; ++byte) {
        node.takes_plain = IsPlainByte(static_cast<uint8_t>(byte));
      }
    }
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (begins.test(byte)) machine->samples.push_back(static_cast<uint8_t>(byte));
    machine->class_of[byte] = static_cast<uint8_t>(machine->samples.size() - 1);
  }
}

// Counts in how many ways a text can go on after each byte, without regard to the stack.
class Readings {
 public:
  Readings(const Machine& machine, WorkMeter* work)
      : machine_(machine), work_(*work), seen_(machine.nodes.size()) {}

  absl::Status Check() {
    ANNULUS_RETURN_IF_ERROR(Bound());
    std::vector<bool> entries(machine_.nodes.size());
    entries[machine_.start] = true;
    for (const ByteEdge& edge : machine_.edges) entries[edge.target] = true;
    for (const Node& node : machine_.nodes) {
      if (node.kind == NodeKind::kCall || node.kind == NodeKind::kRepeat) entries[node.next] = true;
    }
    for (const NodeId start : machine_.rules) entries[start] = true;
    for (NodeId id = 0; id < machine_.nodes.size(); ++id) {
      if (entries[id] && bounds_[id] > kMaxReadings) ANNULUS_RETURN_IF_ERROR(CheckFrom(id));
    }
    return absl::OkStatus();
  }

 private:
  // Bounds the readings of each node from above in one pass, so that few must be counted. A node
  // that leads to a later one has no bound.
  absl::Status Bound() {
    constexpr uint32_t kNoBound = kMaxReadings + 1;
    ANNULUS_RETURN_IF_ERROR(work_.Step(static_cast<int64_t>(machine_.nodes.size() / 8)));
    for (NodeId id = 0; id < machine_.nodes.size(); ++id) {
      const Node& node = machine_.nodes[id];
      uint32_t sum = node.kind == NodeKind::kBytes ? 1 : 0;
      const auto add = [&](NodeId target) {
        sum = std::min(kNoBound, sum + (target < id ? bounds_[target] : kNoBound));
      };
      if (node.kind == NodeKind::kSplit) {
        std::for_each(machine_.targets.begin() + node.begin, machine_.targets.begin() + node.end,
                      add);
      } else if (node.kind == NodeKind::kCall) {
        add(machine_.rules[node.rule]);
      } else if (node.kind == NodeKind::kRepeat) {
        if (node.most > 0) add(node.body);
        if (node.least == 0 || node.most == 0) add(node.next);
      }
      bounds_.push_back(sum);
    }
    return absl::OkStatus();
  }

  absl::Status CheckFrom(NodeId from) {
    ++round_;
    size_t readings = 0;
    open_.assign(1, from);
    while (!open_.empty()) {
      ANNULUS_RETURN_IF_ERROR(work_.Step());
      const NodeId id = open_.back();
      open_.pop_back();
      if (seen_[id] == round_) continue;
      seen_[id] = round_;
      const Node& node = machine_.nodes[id];
      if (node.kind == NodeKind::kBytes && ++readings > kMaxReadings) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the output constraint can continue in more than ", kMaxReadings,
            " ways at one place; use fewer branches of anyOf and oneOf, fewer optional properties "
            "in a row, or fewer alternatives"));
      }
      if (node.kind == NodeKind::kSplit) {
        open_.insert(open_.end(), machine_.targets.begin() + node.begin,
                     machine_.targets.begin() + node.end);
      } else if (node.kind == NodeKind::kCall) {
        open_.push_back(machine_.rules[node.rule]);
      } else if (node.kind == NodeKind::kRepeat) {
        if (node.most > 0) open_.push_back(node.body);
        if (node.least == 0) open_.push_back(node.next);
      }
    }
    return absl::OkStatus();
  }

  const Machine& machine_;
  WorkMeter& work_;
  uint32_t round_ = 0;
  std::vector<uint32_t> bounds_;
  std::vector<uint32_t> seen_;  // the last round that came by
  std::vector<NodeId> open_;
};

}  // namespace

absl::Status FinishMachine(const std::bitset<256>& bytes, WorkMeter* work, Machine* machine) {
  const std::bitset<256> missing = machine->literal_bytes & ~bytes;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (!missing.test(byte)) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "the output constraint needs the byte 0x%02X, for which the model's vocabulary has no "
        "token; use other characters or another model",
        byte));
  }
  if (!bytes.all()) RemoveBytes(bytes, machine);
  Productive productive(machine, work);
  ANNULUS_RETURN_IF_ERROR(productive.Find());
  if (!productive.start()) {
    return absl::InvalidArgumentError(
        bytes.all() ? "no text satisfies the output constraint; look for bounds and required "
                      "properties that contradict each other"
                    : "no text satisfies the output constraint, at least none that the model's "
                      "vocabulary can spell");
  }
  productive.Trim();
  SetClasses(machine);
  return Readings(*machine, work).Check();
}

}  // namespace annulus
