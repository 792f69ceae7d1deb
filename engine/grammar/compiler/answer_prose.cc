#include "engine/grammar/compiler/answer_prose.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/token_trie.h"

namespace annulus {
namespace {

constexpr NodeId kDead = ~NodeId{0};

// The states of a deterministic automaton over the bytes of a text: where in a line and in the
// answer it is, and which beginning of a mark was read there.
class Prose {
 public:
  Prose(std::vector<ProseMark> marks, const ProseKind& kind, MachineBuilder* builder)
      : marks_(std::move(marks)), kind_(kind), builder_(*builder) {}

  NodeId Emit() {
    const NodeId start = At({.line = true, .start = true});
    while (!pending_.empty() && builder_.ok()) {
      const auto [state, rule] = std::move(pending_.back());
      pending_.pop_back();
      builder_.DefineRule(rule, Body(state));
    }
    return start;
  }

 private:
  struct State {
    bool line = false;   // a line begins here
    bool start = false;  // no text came yet
    std::string read{};  // of a mark
    auto operator<=>(const State&) const = default;
  };

  NodeId At(const State& state) {
    const auto [known, added] = nodes_.emplace(state, kDead);
    if (!added) return known->second;
    builder_.Take(256 + 4 * state.read.size());  // for the entries
    const RuleId rule = builder_.DeclareRule();
    pending_.emplace_back(state, rule);
    return known->second = builder_.Call(rule, kReturnNode);
  }

  bool Applies(const ProseMark& mark, const State& state) const {
    if (mark.token) return !state.read.empty() && state.read[0] == static_cast<char>(kMarkBegin);
    return (!mark.line || state.line) && (!mark.start || state.start);
  }

  // Where `byte` leads by some mark; kDead if it is part of none.
  NodeId ByMark(const State& state, char byte) {
    State next = state;
    next.read.push_back(byte);
    bool goes_on = false;
    for (const ProseMark& mark : marks_) {
      if (mark.begins || !Applies(mark, state) || !absl::StartsWith(mark.bytes, next.read))
        continue;
      if (mark.bytes == next.read) return mark.target;
      goes_on = true;
    }
    return goes_on ? At(next) : kDead;
  }

  NodeId Next(const State& state, uint8_t byte) {
    const char c = static_cast<char>(byte);
    if (byte == kMarkBegin) {
      const State token{.line = state.line, .start = state.start, .read = std::string(1, c)};
      return At(state.read.empty() ? token : State{.read = std::string(1, c)});
    }
    const NodeId marked = ByMark(state, c);
    if (marked != kDead) return marked;
    // What was read is text, and so is the byte, unless it begins a mark behind it.
    if (!state.read.empty()) return Next(State{}, byte);
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    return At({.line = c == '\n', .start = state.start && space});
  }

  NodeId Body(const State& state) {
    std::array<NodeId, 256> next;
    std::vector<NodeId> ways;
    for (int byte = 0; byte < 256; ++byte) next[byte] = Next(state, static_cast<uint8_t>(byte));
    for (const ProseMark& mark : marks_) {
      if (!mark.begins || !state.read.empty() || !Applies(mark, state)) continue;
      next[static_cast<uint8_t>(mark.bytes[0])] = kDead;
      ways.push_back(mark.target);
    }
    std::vector<ByteEdge> edges;
    for (int byte = 0; byte < 256; ++byte) {
      if (next[byte] == kDead) continue;
      const bool joins =
          !edges.empty() && edges.back().last == byte - 1 && edges.back().target == next[byte];
      if (!joins) edges.push_back({static_cast<uint8_t>(byte), 0, next[byte]});
      edges.back().last = static_cast<uint8_t>(byte);
    }
    ways.push_back(builder_.Bytes(edges, kind_.thinks));
    if (kind_.may_end) ways.push_back(kReturnNode);
    return builder_.Split(ways);
  }

  const std::vector<ProseMark> marks_;
  const ProseKind kind_;
  MachineBuilder& builder_;
  std::map<State, NodeId> nodes_;
  std::vector<std::pair<State, RuleId>> pending_;
};

}  // namespace

NodeId EmitProse(std::vector<ProseMark> marks, const ProseKind& kind, MachineBuilder* builder) {
  return Prose(std::move(marks), kind, builder).Emit();
}

}  // namespace annulus
