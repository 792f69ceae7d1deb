#ifndef ANNULUS_KERNELS_CUDA_SM80_SCORES_ROWS_H_
#define ANNULUS_KERNELS_CUDA_SM80_SCORES_ROWS_H_

// What the block score kernels share: packed rows, sums of exponentials, branches.
#include <cmath>

#include "kernels/cuda/common/device.h"
#include "kernels/cuda/sm80/scores.h"

namespace annulus::cuda {

inline constexpr int kScorePasses = 4;  // over the rows of a tile, to process its sums
inline constexpr int kPassRows = kScoredRows / kScorePasses;

// The row of its tile, and the part of it, that packed row `at` holds. Pass i processes rows 16 i
// .. 16 i + 15 and 64 + 16 i .. 64 + 16 i + 15 together; these include all parts of each row.
struct TileRow {
  int index;
  int part;
};
ANNULUS_DEVICE TileRow TileRowOf(int at, int parts) {
  const int rows = kPassRows / parts;
  const int local = at / 64 * 16 + at % 16;
  return {at % 64 / 16 * rows + local % rows, local / rows};
}

// The first packed row of a tile, for an item and the block's kv head.
ANNULUS_DEVICE int64_t FirstRow(const ScoresItemView& item, int32_t row_tile) {
  return (item.first_row_tile + BlockY() * item.row_tiles + row_tile) * kScoredRows;
}

// A sum of exponentials of scores, relative to the largest score.
struct LogSum {
  float maximum;  // -infinity: none yet
  float sum;

  ANNULUS_DEVICE void Add(float score) {
    if (score > maximum) {
      sum = sum * expf(maximum - score) + 1;
      maximum = score;
    } else if (!(score < -FloatOf(0x7f7fffffu))) {
      sum += expf(score - maximum);
    }
  }
  ANNULUS_DEVICE void Merge(const LogSum& other) {
    const float largest = fmaxf(maximum, other.maximum);
    const float base = largest == -FloatOf(0x7f800000u) ? 0 : largest;
    sum = sum * expf(maximum - base) + other.sum * expf(other.maximum - base);
    maximum = largest;
  }
  ANNULUS_DEVICE float Log() const {
    return sum == 0 ? -FloatOf(0x7f800000u) : maximum + logf(sum);
  }
};

// Whether the item has branches and none of them keeps the key for the row's head.
ANNULUS_DEVICE bool LeavesOut(const ScoresItemView& item, int32_t position, int head, int32_t key) {
  for (int b = 0; b < item.branch_count; ++b) {
    const DilatedBranch branch = item.branches[b];
    const int32_t residue = head % branch.rate;
    if (position / branch.segment == key / branch.segment && position % branch.rate == residue &&
        key % branch.rate == residue) {
      return false;
    }
  }
  return item.branch_count > 0;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_SCORES_ROWS_H_
