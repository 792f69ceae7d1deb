#ifndef ANNULUS_ENGINE_TEXT_STAGES_LITERAL_SET_H_
#define ANNULUS_ENGINE_TEXT_STAGES_LITERAL_SET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Finds occurrences of a set of literal strings in a text: leftmost first, the longest if several
// start at the same position, without overlaps. Linear in the text for any strings.
//
// An Aho-Corasick automaton (Communications of the ACM 18(6), 1975) over the reversed strings reads
// the text backwards, which yields the longest string that starts at each position. A forward pass
// then selects the matches. Immutable once built; thread-safe.
class LiteralSet {
 public:
  struct Match {
    size_t begin;
    size_t end;
    int32_t index;  // of the string, in the order of Add calls
  };

  static constexpr size_t kMaxBytes = 4 << 20;  // of all strings together

  // `literal` must not be empty. Must not be called after Build. INVALID_ARGUMENT if the string was
  // added before or the total exceeds kMaxBytes.
  absl::Status Add(absl::string_view literal);

  // Must be called once, after the last Add.
  void Build();

  bool empty() const { return count_ == 0; }
  // Returns matches that start at or after `from`.
  std::vector<Match> Find(absl::string_view text, size_t from = 0) const;

 private:
  using State = uint32_t;
  static constexpr State kRoot = 0;
  static constexpr int32_t kNone = -1;

  struct Node {
    State parent = kRoot;
    State fallback = kRoot;   // the longest proper suffix that is a state
    uint8_t byte = 0;         // the byte on the edge from the parent
    int32_t longest = kNone;  // the longest literal that ends here
    size_t length = 0;        // of that literal
  };

  static uint64_t Edge(State from, uint8_t byte) { return uint64_t{from} << 8 | byte; }
  State Next(State from, uint8_t byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);  // parents come before their children
  std::array<State, 256> from_root_{};
  absl::flat_hash_map<uint64_t, State> edges_;  // Edge -> state, other than from the root
  int32_t count_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_LITERAL_SET_H_
