#include "engine/text/models/byte_trie.h"

#include <algorithm>

namespace annulus {

ByteTrie::ByteTrie(std::vector<std::pair<std::string, int32_t>> strings) {
  std::sort(strings.begin(), strings.end());
  // Strings [begin, end) have the first `depth` bytes in common, which lead to `node`.
  struct Group {
    uint32_t node;
    size_t begin;
    size_t end;
    size_t depth;
  };
  std::vector<Group> groups = {{0, 0, strings.size(), 0}};
  for (size_t next = 0; next < groups.size(); ++next) {
    Group group = groups[next];
    if (group.begin < group.end && strings[group.begin].first.size() == group.depth) {
      nodes_[group.node].value = strings[group.begin++].second;
    }
    nodes_[group.node].first_child = static_cast<uint32_t>(nodes_.size());
    while (group.begin < group.end) {
      const char byte = strings[group.begin].first[group.depth];
      size_t end = group.begin;
      while (end < group.end && strings[end].first[group.depth] == byte) ++end;
      groups.push_back({static_cast<uint32_t>(nodes_.size()), group.begin, end, group.depth + 1});
      nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
      ++nodes_[group.node].children;
      group.begin = end;
    }
  }
  for (uint32_t i = 0; i < nodes_[0].children; ++i) {
    roots_[nodes_[nodes_[0].first_child + i].byte] = nodes_[0].first_child + i;
  }
}

const ByteTrie::Node* ByteTrie::Child(const Node& node, uint8_t byte) const {
  const auto begin = nodes_.begin() + node.first_child;
  const auto end = begin + node.children;
  const auto found =
      node.children <= 8
          ? std::find_if(begin, end, [&](const Node& n) { return n.byte == byte; })
          : std::lower_bound(begin, end, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  return found == end || found->byte != byte ? nullptr : &*found;
}

void ByteTrie::ForEachPrefix(absl::string_view text,
                             absl::FunctionRef<void(size_t, int32_t)> each) const {
  if (text.empty() || roots_[static_cast<uint8_t>(text.front())] == 0) return;
  const Node* node = &nodes_[roots_[static_cast<uint8_t>(text.front())]];
  for (size_t length = 1; node != nullptr; ++length) {
    if (node->value != kNone) each(length, node->value);
    if (length == text.size()) return;
    node = Child(*node, static_cast<uint8_t>(text[length]));
  }
}

}  // namespace annulus
