#ifndef ANNULUS_ENGINE_TEXT_MODELS_BYTE_TRIE_H_
#define ANNULUS_ENGINE_TEXT_MODELS_BYTE_TRIE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Finds which of a set of strings a text starts with. Immutable and thread-safe.
class ByteTrie {
 public:
  ByteTrie() = default;

  // `strings`: distinct, non-empty strings and their values (0 and up).
  explicit ByteTrie(std::vector<std::pair<std::string, int32_t>> strings);

  // Calls `each(length, value)` for every string that `text` starts with, shortest first. Takes
  // time proportional to the longest.
  void ForEachPrefix(absl::string_view text, absl::FunctionRef<void(size_t, int32_t)> each) const;

 private:
  static constexpr int32_t kNone = -1;

  // The children of a node are stored consecutively, in order of their bytes.
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t byte = 0;
    int32_t value = kNone;
  };

  const Node* Child(const Node& node, uint8_t byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<uint32_t, 256> roots_{};  // node for the first byte; 0: none
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_MODELS_BYTE_TRIE_H_
