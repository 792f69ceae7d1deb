#include "engine/text/stages/literal_set.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/text/utf8.h"

namespace annulus {

absl::Status LiteralSet::Add(absl::string_view literal) {
  if (nodes_.size() + literal.size() > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("together they have more than ", kMaxBytes, " bytes"));
  }
  State state = kRoot;
  for (size_t i = literal.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(literal[i]);
    State& next = state == kRoot ? from_root_[byte] : edges_[Edge(state, byte)];
    if (next == kRoot) {
      next = static_cast<State>(nodes_.size());
      nodes_.push_back({.parent = state, .byte = byte});
    }
    state = next;
  }
  Node& node = nodes_[state];
  if (node.longest != kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", TruncateUtf8(literal, 80), "\" is given twice"));
  }
  node.longest = count_++;
  node.length = literal.size();
  return absl::OkStatus();
}

LiteralSet::State LiteralSet::Next(State from, uint8_t byte) const {
  while (from != kRoot) {
    const auto edge = edges_.find(Edge(from, byte));
    if (edge != edges_.end()) return edge->second;
    from = nodes_[from].fallback;
  }
  return from_root_[byte];
}

void LiteralSet::Build() {
  // A fallback is shorter than its state, so states are finished in the order of their depth.
  std::vector<uint32_t> depth(nodes_.size(), 0);
  for (State state = 1; state < nodes_.size(); ++state) {
    depth[state] = depth[nodes_[state].parent] + 1;
  }
  std::vector<State> order(nodes_.size());
  std::iota(order.begin(), order.end(), State{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](State a, State b) { return depth[a] < depth[b]; });
  for (const State state : order) {
    if (state == kRoot) continue;
    Node& node = nodes_[state];
    if (node.parent != kRoot) node.fallback = Next(nodes_[node.parent].fallback, node.byte);
    if (node.longest == kNone) {
      node.longest = nodes_[node.fallback].longest;
      node.length = nodes_[node.fallback].length;
    }
  }
}

std::vector<LiteralSet::Match> LiteralSet::Find(absl::string_view text, size_t from) const {
  std::vector<Match> found;  // the longest at each place, from the last place to the first
  State state = kRoot;
  for (size_t i = text.size(); i-- > from;) {
    state = Next(state, static_cast<uint8_t>(text[i]));
    const Node& node = nodes_[state];
    if (node.longest != kNone) found.push_back({i, i + node.length, node.longest});
  }
  std::reverse(found.begin(), found.end());
  size_t kept = 0;
  size_t end = from;
  for (const Match& match : found) {
    if (match.begin < end) continue;
    end = match.end;
    found[kept++] = match;
  }
  found.resize(kept);
  return found;
}

}  // namespace annulus
