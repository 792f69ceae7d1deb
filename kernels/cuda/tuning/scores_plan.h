#ifndef ANNULUS_KERNELS_CUDA_TUNING_SCORES_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_SCORES_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sm80/scores.h"
#include "kernels/ops/block_scores.h"

namespace annulus::cuda {

// Decides which block of the grid scores what. Pure functions.

// The float32 version.
struct FloatScoresPlan {
  std::vector<std::vector<RowGroup>> groups;  // [item]
  std::vector<int64_t> blocks;                // [item]
  std::vector<ScoresUnit> units;
};
FloatScoresPlan PlanFloatScores(const BlockScoresParams& params);

// The tensor core version. `k_stride`: elements between consecutive keys of a page. Tiles with the
// same keys are consecutive, so that those keys are read from memory once.
struct TensorScoresPlan {
  int parts = 1;
  int tile_rows = 0;
  int depth = 0;
  int block_columns = 0;
  std::vector<std::vector<RowGroup>> groups;      // [item]
  std::vector<std::vector<int32_t>> block_pages;  // [item][blocks + 1]
  std::vector<int64_t> first_row_tile;            // [item] as in ScoresItemView
  std::vector<PackedTile> row_tiles;
  std::vector<ScoresTile> tiles;
  int64_t packed_tiles = 0;  // for all kv heads
};
// Elements per packed row.
int PackedDepth(int stride, int k_stride);
TensorScoresPlan PlanTensorScores(const BlockScoresParams& params, int k_stride);

// Number of summaries that a block scores together: the largest power of two with which 4 blocks
// fit their shared memory, but at least the `parts` of one page, also a power of two.
int SummaryRun(int k_dim, int parts, const DeviceInfo& device);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_SCORES_PLAN_H_
