#include "engine/grammar/compiler/machine_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace annulus {
namespace {

// What the trie of OneOf takes for a byte of the texts, and what is known of a continuation beside
// its ranges.
constexpr size_t kBytesPerBranch = 192;
constexpr size_t kBytesPerContinuation = 192;

struct ShortEscape {
  char32_t character;
  char letter;
};
constexpr ShortEscape kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                         {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

}  // namespace

MachineBuilder::MachineBuilder(CompileMeter* meter) : meter_(*meter) {
  machine_.nodes.emplace_back();  // kReturnNode
}

void MachineBuilder::Fail(const absl::Status& status) { status_.Update(status); }

bool MachineBuilder::Step(int64_t steps) {
  if (status_.ok()) status_ = meter_.Step(steps);
  return status_.ok();
}

bool MachineBuilder::Take(size_t bytes) {
  if (status_.ok()) status_ = meter_.Take(bytes);
  return status_.ok();
}

NodeId MachineBuilder::Add(Node node, size_t parts) {
  if (!Step(static_cast<int64_t>(parts))) return kReturnNode;
  parts_ += parts;
  if (parts_ > kMaxParts) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        "the output constraint needs more than ", kMaxParts,
        " states; use fewer properties, shorter lists of values or smaller repetitions")));
    return kReturnNode;
  }
  machine_.nodes.push_back(node);
  return static_cast<NodeId>(machine_.nodes.size() - 1);
}

NodeId MachineBuilder::Bytes(const std::vector<ByteEdge>& edges, bool thinks) {
  Node node;
  node.kind = Node::Kind::kBytes;
  node.thinks = thinks;
  node.begin = static_cast<uint32_t>(machine_.edges.size());
  node.end = static_cast<uint32_t>(node.begin + edges.size());
  const NodeId id = Add(node, 1 + edges.size());
  if (ok()) machine_.edges.insert(machine_.edges.end(), edges.begin(), edges.end());
  return id;
}

NodeId MachineBuilder::Byte(char byte, NodeId next) {
  const auto value = static_cast<uint8_t>(byte);
  machine_.literal_bytes.set(value);
  return Bytes({{value, value, next}});
}

NodeId MachineBuilder::Split(const std::vector<NodeId>& targets) {
  if (targets.size() == 1) return targets.front();
  Node node;
  node.kind = Node::Kind::kSplit;
  node.begin = static_cast<uint32_t>(machine_.targets.size());
  node.end = static_cast<uint32_t>(node.begin + targets.size());
  const NodeId id = Add(node, 1 + targets.size());
  if (ok()) machine_.targets.insert(machine_.targets.end(), targets.begin(), targets.end());
  return id;
}

NodeId MachineBuilder::Call(RuleId rule, NodeId next) {
  Node node;
  node.kind = Node::Kind::kCall;
  node.rule = rule;
  node.next = next;
  return Add(node, 1);
}

NodeId MachineBuilder::Repeat(NodeId body, uint32_t least, uint32_t most, bool plain, NodeId next) {
  Node node;
  node.kind = Node::Kind::kRepeat;
  node.body = body;
  node.next = next;
  node.least = least;
  node.most = most;
  node.repeats_plain = plain;
  return Add(node, 1);
}

NodeId MachineBuilder::OpenLoop() { return Split({kReturnNode, kReturnNode}); }

void MachineBuilder::CloseLoop(NodeId loop, NodeId body, NodeId next) {
  if (!ok()) return;
  const Node& node = machine_.nodes[loop];
  machine_.targets[node.begin] = body;
  machine_.targets[node.begin + 1] = next;
}

NodeId MachineBuilder::Literal(absl::string_view text, NodeId next) {
  for (size_t i = text.size(); i > 0 && ok(); --i) next = Byte(text[i - 1], next);
  return next;
}

NodeId MachineBuilder::OneOf(std::vector<std::string> texts, NodeId next) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  struct Branch {
    std::vector<std::pair<char, size_t>> children;
    bool ends = false;
  };
  std::vector<Branch> trie(1);  // children come after their parents
  std::vector<size_t> path;     // of the text before
  size_t taken = 0;
  absl::string_view before;
  for (const std::string& text : texts) {
    if (!Step(StepsFor(text.size()))) return kReturnNode;
    const size_t shared = static_cast<size_t>(
        std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin());
    path.resize(shared);
    const size_t bytes = (text.size() - shared) * kBytesPerBranch;
    if (!Take(bytes)) return kReturnNode;
    taken += bytes;
    for (size_t i = shared; i < text.size(); ++i) {
      if (trie.size() > kMaxParts) break;  // Add says so below
      trie[path.empty() ? 0 : path.back()].children.push_back({text[i], trie.size()});
      path.push_back(trie.size());
      trie.emplace_back();
    }
    trie[path.empty() ? 0 : path.back()].ends = true;
    before = text;
  }
  std::vector<NodeId> nodes(trie.size(), kReturnNode);
  for (size_t i = trie.size(); i > 0 && ok(); --i) {
    const Branch& branch = trie[i - 1];
    std::vector<ByteEdge> edges;
    for (const auto& [byte, child] : branch.children) {
      const auto value = static_cast<uint8_t>(byte);
      machine_.literal_bytes.set(value);
      edges.push_back({value, value, nodes[child]});
    }
    if (branch.ends) {
      nodes[i - 1] = edges.empty() ? next : Split({next, Bytes(edges)});
    } else {
      nodes[i - 1] = Bytes(edges);
    }
  }
  Give(taken);
  return nodes.front();
}

NodeId MachineBuilder::Character(const CharacterClass& members, Spelling spelling, NodeId next) {
  std::vector<ByteEdge> edges;
  AppendCharacter(members, spelling, next, &edges);
  return Bytes(edges);
}

void MachineBuilder::AppendCharacter(const CharacterClass& members, Spelling spelling, NodeId next,
                                     std::vector<ByteEdge>* edges) {
  if (!ok()) return;
  const size_t before = edges->size();
  if (spelling == Spelling::kPlain) {
    AppendUtf8(members, next, edges);
  } else {
    static const auto& escaped = *new CharacterClass({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
    AppendUtf8(members.Without(escaped), next, edges);
    AppendEscapes(members.Intersection(escaped), next, edges);
  }
  if (members.ranges().size() == 1 && members.ranges()[0].first == members.ranges()[0].last) {
    for (size_t i = before; i < edges->size(); ++i) machine_.literal_bytes.set((*edges)[i].first);
  }
}

void MachineBuilder::AppendUtf8(const CharacterClass& members, NodeId next,
                                std::vector<ByteEdge>* edges) {
  constexpr struct {
    CodePoints range;
    int continuation;
    uint8_t prefix;
  } kLengths[] = {{{0, 0x7F}, 0, 0x00},
                  {{0x80, 0x7FF}, 1, 0xC0},
                  {{0x800, 0xFFFF}, 2, 0xE0},
                  {{0x10000, 0x10FFFF}, 3, 0xF0}};
  for (const auto& length : kLengths) {
    const CharacterClass part = members.Intersection(CharacterClass({length.range}));
    AppendEdges(part.ranges(), length.continuation, length.prefix, next, edges);
  }
}

void MachineBuilder::AppendEdges(const std::vector<CodePoints>& ranges, int bytes, uint8_t prefix,
                                 NodeId next, std::vector<ByteEdge>* edges) {
  const char32_t span = char32_t{1} << (6 * bytes);  // code points below one byte of this level
  const auto append = [&](char32_t first, char32_t last, NodeId target) {
    edges->push_back(
        {static_cast<uint8_t>(prefix | first), static_cast<uint8_t>(prefix | last), target});
  };
  size_t i = 0;
  char32_t from = ranges.empty() ? 0 : ranges[0].first;
  const auto advance = [&](char32_t next_from) {
    from = next_from;
    if (from > ranges[i].last && ++i < ranges.size()) from = ranges[i].first;
  };
  while (i < ranges.size() && Step()) {
    const char32_t top = from / span;
    if (from % span == 0 && ranges[i].last >= from + span - 1) {
      // Whole bytes: everything below them belongs to the class.
      const char32_t end = (ranges[i].last + 1) / span;
      append(top, end - 1, bytes == 0 ? next : Continuation({{0, span - 1}}, bytes, next));
      advance(end * span);
      continue;
    }
    std::vector<CodePoints> below;
    while (i < ranges.size() && from / span == top) {
      const auto last = std::min<char32_t>(ranges[i].last, (top + 1) * span - 1);
      below.push_back({from % span, last % span});
      advance(last + 1);
    }
    append(top, top, Continuation(below, bytes, next));
  }
}

NodeId MachineBuilder::Continuation(const std::vector<CodePoints>& ranges, int bytes, NodeId next) {
  if (!ok()) return kReturnNode;
  auto key = std::tuple(next, bytes, ranges);
  const auto known = continuations_.find(key);
  if (known != continuations_.end()) return known->second;
  if (!Take(kBytesPerContinuation + 2 * ranges.size() * sizeof(CodePoints))) return kReturnNode;
  std::vector<ByteEdge> edges;
  AppendEdges(ranges, bytes - 1, 0x80, next, &edges);
  const NodeId node = Bytes(edges);
  continuations_.emplace(std::move(key), node);
  return node;
}

void MachineBuilder::AppendEscapes(const CharacterClass& members, NodeId next,
                                   std::vector<ByteEdge>* edges) {
  if (members.empty()) return;
  std::vector<ByteEdge> letters;
  CharacterClass named;
  for (const ShortEscape& escape : kShortEscapes) {
    named = named.Union(CharacterClass({{escape.character, escape.character}}));
    if (!members.Contains(escape.character)) continue;
    const auto letter = static_cast<uint8_t>(escape.letter);
    letters.push_back({letter, letter, next});
  }
  std::vector<std::string> numbers;
  const CharacterClass unnamed = members.Without(named);
  for (const CodePoints& range : unnamed.ranges()) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      numbers.push_back(absl::StrFormat("00%02x", static_cast<unsigned>(c)));
      numbers.push_back(absl::StrFormat("00%02X", static_cast<unsigned>(c)));
    }
  }
  if (!numbers.empty()) letters.push_back({'u', 'u', OneOf(std::move(numbers), next)});
  edges->push_back({'\\', '\\', Bytes(letters)});
}

RuleId MachineBuilder::DeclareRule() {
  machine_.rules.push_back(kReturnNode);
  return static_cast<RuleId>(machine_.rules.size() - 1);
}

void MachineBuilder::DefineRule(RuleId rule, NodeId start) { machine_.rules[rule] = start; }

Machine MachineBuilder::Take(NodeId start) {
  machine_.start = start;
  return std::move(machine_);
}

}  // namespace annulus
