#ifndef ANNULUS_ENGINE_SPARSE_PATTERN_PAIRS_H_
#define ANNULUS_ENGINE_SPARSE_PATTERN_PAIRS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sparse/assignment.h"

namespace annulus {

// Estimates how many (row, key) pairs the rows of a prompt attend under policies that do not look
// at content, to predict how long the rows take. CountPairs of block_pattern.h is exact, but builds
// the lists of all blocks. This counts the blocks of a few rows once (fewer than 100 for a million
// tokens; no list is built, since a client's policy may make them long) and takes the number of
// keys for a straight line between them. Immutable.
class PatternPairs {
 public:
  // Pairs are the mean over `layers`, at least one, and over the heads of keys and values.
  // `attention`: resolved; no policy of it may satisfy ChoosesByContent. `tokens`: the prompt's.
  PatternPairs(const AttentionAssignment& attention, std::span<const int32_t> layers, int kv_heads,
               int64_t tokens);

  // Pairs of rows [begin, end). Rows from `tokens` on attend as many keys as the last row looked
  // at.
  double Count(int64_t begin, int64_t end) const { return Before(end) - Before(begin); }

 private:
  struct Sample {
    double row = 0;
    double keys = 0;   // that it attends
    double pairs = 0;  // of the rows before it
  };

  double Before(int64_t row) const;

  std::vector<Sample> samples_;  // ascending rows, the first at 0
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_PATTERN_PAIRS_H_
