#include "engine/grammar/compiler/string_pattern.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

using Kind = RegexTree::Kind;
using States = std::vector<uint32_t>;  // ascending

// A nondeterministic automaton over characters (Thompson's construction), with one end.
class CharacterAutomaton {
 public:
  static constexpr uint32_t kEnd = 0;

  CharacterAutomaton(const RegexTree& tree, MachineBuilder* builder) : builder_(*builder) {
    states_.emplace_back();
    start_ = Add(tree, kEnd);
  }

  States Start() { return Closed({start_}); }

  States Next(const States& from, char32_t c) {
    States next;
    for (const uint32_t state : from) {
      builder_.Step();
      if (states_[state].reads && states_[state].members.Contains(c)) {
        next.push_back(states_[state].targets[0]);
      }
    }
    return Closed(std::move(next));
  }

  // Adds where the classes of its characters begin.
  void AddBoundaries(std::vector<char32_t>* boundaries) const {
    for (const State& state : states_) {
      for (const CodePoints& range : state.members.ranges()) {
        boundaries->push_back(range.first);
        boundaries->push_back(range.last + 1);
      }
    }
  }

 private:
  struct State {
    bool reads = false;  // a character of `members`; else it goes on without
    CharacterClass members;
    std::vector<uint32_t> targets;
  };

  uint32_t New(State state) {
    if (states_.size() >= kMaxPatternStates) {
      builder_.Fail(absl::InvalidArgumentError(absl::StrCat(
          "a pattern combined with other patterns or lengths needs more than ", kMaxPatternStates,
          " states; use smaller repetitions, or drop one of the two")));
    }
    // A copy of the class and its boundaries; vectors double.
    const size_t bytes = 3 * sizeof(State) + 64 + 40 * state.members.ranges().size();
    if (!builder_.Step() || !builder_.Take(bytes)) return kEnd;
    states_.push_back(std::move(state));
    return static_cast<uint32_t>(states_.size() - 1);
  }

  uint32_t Add(const RegexTree& tree, uint32_t next) {
    if (!builder_.ok()) return kEnd;
    switch (tree.kind) {
      case Kind::kCharacter:
        return New({true, tree.members, {next}});
      case Kind::kChoice: {
        State choice;
        for (const RegexTree& child : tree.children) choice.targets.push_back(Add(child, next));
        return New(std::move(choice));
      }
      case Kind::kRepeat:
        return AddRepeat(tree, next);
      default:
        for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
          next = Add(*child, next);
        }
        return next;
    }
  }

  uint32_t AddRepeat(const RegexTree& tree, uint32_t next) {
    uint32_t start = next;
    if (tree.most == kUnbounded) {
      const uint32_t loop = New({false, {}, {next}});
      const uint32_t body = Add(tree.children[0], loop);
      if (builder_.ok()) states_[loop].targets.push_back(body);
      start = loop;
    } else {
      for (uint32_t i = tree.least; i < tree.most && builder_.ok(); ++i) {
        start = New({false, {}, {Add(tree.children[0], start), next}});
      }
    }
    for (uint32_t i = 0; i < tree.least && builder_.ok(); ++i) start = Add(tree.children[0], start);
    return start;
  }

  // All that is reached without reading.
  States Closed(States open) {
    States closed;
    std::vector<bool> seen(states_.size());
    while (!open.empty() && builder_.Step()) {
      const uint32_t state = open.back();
      open.pop_back();
      if (seen[state]) continue;
      seen[state] = true;
      if (states_[state].reads || state == kEnd) closed.push_back(state);
      if (!states_[state].reads) {
        open.insert(open.end(), states_[state].targets.begin(), states_[state].targets.end());
      }
    }
    std::sort(closed.begin(), closed.end());
    return closed;
  }

  MachineBuilder& builder_;
  std::vector<State> states_;
  uint32_t start_ = kEnd;
};

// The deterministic product of automata and a count of characters.
class Product {
 public:
  Product(const std::vector<RegexTree>& patterns, uint32_t least, uint32_t most, Spelling spelling,
          MachineBuilder* builder)
      : least_(least), most_(most), spelling_(spelling), builder_(*builder) {
    boundaries_ = {0, 0xE000};
    for (const RegexTree& pattern : patterns) {
      automata_.emplace_back(pattern, builder);
      automata_.back().AddBoundaries(&boundaries_);
    }
    std::sort(boundaries_.begin(), boundaries_.end());
    boundaries_.erase(std::unique(boundaries_.begin(), boundaries_.end()), boundaries_.end());
    std::erase_if(boundaries_, [](char32_t c) { return c > 0x10FFFF; });
  }

  NodeId Emit(NodeId next) {
    dead_ = builder_.Split({});
    Key start;
    for (CharacterAutomaton& automaton : automata_) start.sets.push_back(automaton.Start());
    const NodeId node = NodeOf(std::move(start));
    while (!pending_.empty() && builder_.ok()) {
      const auto [key, of_key] = std::move(pending_.back());
      pending_.pop_back();
      builder_.CloseLoop(of_key, Characters(key), MayEnd(key) ? next : dead_);
    }
    return node;
  }

 private:
  struct Key {
    std::vector<States> sets;
    uint32_t count = 0;  // of characters; no more than matters
    auto operator<=>(const Key&) const = default;
  };

  bool MayEnd(const Key& key) const {
    return key.count >= least_ && std::all_of(key.sets.begin(), key.sets.end(), [](auto& set) {
             return !set.empty() && set.front() == CharacterAutomaton::kEnd;
           });
  }

  NodeId NodeOf(Key key) {
    if (const auto known = nodes_.find(key); known != nodes_.end()) return known->second;
    if (nodes_.size() >= kMaxPatternStates) {
      builder_.Fail(absl::InvalidArgumentError(absl::StrCat(
          "a pattern combined with other patterns or lengths needs more than ", kMaxPatternStates,
          " states; use smaller repetitions, or drop one of the two")));
    }
    size_t bytes = 256;  // of an entry of nodes_ and one of pending_, beside the sets
    for (const States& set : key.sets) bytes += 160 + 2 * set.size() * sizeof(uint32_t);
    if (!builder_.Take(bytes)) return kReturnNode;
    const NodeId node = builder_.OpenLoop();
    nodes_.emplace(key, node);
    pending_.emplace_back(std::move(key), node);
    return node;
  }

  // A node that reads one more character.
  NodeId Characters(const Key& key) {
    if (key.count == most_) return dead_;
    std::map<NodeId, std::vector<CodePoints>> classes;
    for (size_t i = 0; i < boundaries_.size() && builder_.ok(); ++i) {
      Key after;
      for (size_t j = 0; j < automata_.size(); ++j) {
        after.sets.push_back(automata_[j].Next(key.sets[j], boundaries_[i]));
        if (after.sets.back().empty()) break;
      }
      if (after.sets.back().empty()) continue;
      const uint32_t matters = most_ == kUnbounded ? least_ : most_;
      after.count = std::min(key.count + 1, matters);
      const char32_t last = i + 1 < boundaries_.size() ? boundaries_[i + 1] - 1 : 0x10FFFF;
      classes[NodeOf(std::move(after))].push_back({boundaries_[i], last});
    }
    std::vector<ByteEdge> edges;
    for (auto& [target, ranges] : classes) {
      builder_.AppendCharacter(CharacterClass(std::move(ranges)), spelling_, target, &edges);
    }
    return builder_.Bytes(edges);
  }

  const uint32_t least_;
  const uint32_t most_;
  const Spelling spelling_;
  MachineBuilder& builder_;
  std::vector<CharacterAutomaton> automata_;
  std::vector<char32_t> boundaries_;
  std::map<Key, NodeId> nodes_;
  std::vector<std::pair<Key, NodeId>> pending_;
  NodeId dead_ = kReturnNode;
};

}  // namespace

NodeId EmitPatterns(const std::vector<RegexTree>& patterns, uint32_t least, uint32_t most,
                    Spelling spelling, NodeId next, MachineBuilder* builder) {
  if (most < least) return builder->Split({});
  if (patterns.size() == 1 && least == 0 && most == kUnbounded) {
    return EmitRegex(patterns.front(), spelling, next, builder);
  }
  return Product(patterns, least, most, spelling, builder).Emit(next);
}

}  // namespace annulus
