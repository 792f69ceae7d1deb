#ifndef ANNULUS_ENGINE_TEXT_MODELS_MERGE_TABLE_H_
#define ANNULUS_ENGINE_TEXT_MODELS_MERGE_TABLE_H_

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "engine/base/work_meter.h"

namespace annulus {

// The merge rules of byte pair encoding (Sennrich, Haddow, Birch 2016, section 3.2): adjacent
// symbols `left` and `right` may become `result`. The rule with the lowest rank is applied first;
// among equals, at the leftmost position. Immutable once filled; thread-safe.
class MergeTable {
 public:
  // A later rule for the same pair replaces the earlier one.
  void Add(int32_t left, int32_t right, uint32_t rank, int32_t result) {
    rules_[Key(left, right)] = {rank, result};
  }

  // Buffers reused by calls of Apply; one per thread.
  struct Workspace {
    struct Symbol {
      int32_t id;
      uint32_t previous;
      uint32_t next;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> queue;  // rank << 32 | position of the left symbol
  };

  // Merges `symbols` (at most 2^32 - 2) until no rule applies, in O(n log n), and appends the
  // remaining ones to `result`. Counts a step for each merge it tries.
  absl::Status Apply(const std::vector<int32_t>& symbols, WorkMeter* work, Workspace* workspace,
                     std::vector<int32_t>* result) const;

 private:
  struct Rule {
    uint32_t rank;
    int32_t result;
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  const Rule* Find(int32_t left, int32_t right) const {
    const auto found = rules_.find(Key(left, right));
    return found == rules_.end() ? nullptr : &found->second;
  }
  void Enqueue(uint32_t position, Workspace* workspace) const;

  absl::flat_hash_map<uint64_t, Rule> rules_;
};

// All pairs (last unit of the left token, first unit of the right token) of merge rules; a unit is
// a byte or a character. No merge can bridge any other pair, so text can be cut there without
// changing its encoding. This lets long texts be merged in short runs.
class JoinTable {
 public:
  void Add(char32_t last, char32_t first) {
    if ((last | first) < kSmall) {
      small_[last * kSmall + first] = true;
    } else {
      large_.insert(uint64_t{last} << 32 | first);
    }
  }
  bool Contains(char32_t last, char32_t first) const {
    if ((last | first) < kSmall) return small_[last * kSmall + first];
    return large_.contains(uint64_t{last} << 32 | first);
  }

 private:
  static constexpr char32_t kSmall = 256;
  std::bitset<size_t{kSmall} * kSmall> small_;
  absl::flat_hash_set<uint64_t> large_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_MODELS_MERGE_TABLE_H_
