#ifndef ANNULUS_KERNELS_CUDA_SM80_SCORES_H_
#define ANNULUS_KERNELS_CUDA_SM80_SCORES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/cuda/common/page_layout.h"
#include "kernels/cuda/common/stream_handle.h"
#include "kernels/ops/attention.h"

// Launches of what kernels/ops/block_scores.h describes. All pointers are addresses that the device
// reads; each returns 0 or the number of CUDA's error.

namespace annulus::cuda {

// The rows of an item that lie in one tile of positions.
struct ScoredRows {
  int32_t first;
  int32_t count;
  int32_t tile;
};

// What one block computes: some row groups of an item against the pages of one block of keys.
struct ScoresUnit {
  int32_t item;
  int32_t first_group;
  int32_t group_count;  // at most kScoredGroups
  int32_t page_begin;
  int32_t page_end;
  int32_t block;  // of the item
};
inline constexpr int kScoredGroups = 32;

struct ScoresItemView {
  const float* query;
  int64_t query_stride;
  const int32_t* positions;
  const KvPageView* pages;
  const ScoredRows* groups;
  const DilatedBranch* branches;
  int branch_count;
  float* scores;  // [groups][heads][blocks]
  int64_t blocks;
};

struct BlockScoresArguments {
  PageLayout layout;
  const ScoresUnit* units;
  const ScoresItemView* items;
  int heads;
  int group;  // query heads per kv head
  float scale;
  float soft_cap;
  int stride;  // 1, 8 or 16
};
int LaunchBlockScores(StreamHandle stream, int64_t units, const BlockScoresArguments& arguments);

struct KeySummaryArguments {
  PageLayout layout;
  const KvPageView* pages;
  float* least;  // null: not wanted
  float* greatest;
  float* mean;
  int parts;  // of a page
  int part_tokens;
};
int LaunchKeySummary(StreamHandle stream, int64_t pages, const KeySummaryArguments& arguments);

struct SummaryScoresArguments {
  int kv_heads;
  int heads;
  int k_dim;
  int64_t pages;
  ConstMatrixView query;
  const float* least;
  const float* greatest;
  float* scores;
};
int LaunchSummaryScores(StreamHandle stream, const SummaryScoresArguments& arguments);

struct RowMeansArguments {
  ConstMatrixView input;
  const int32_t* ends;  // [output.rows]
  MatrixView output;
};
int LaunchRowMeans(StreamHandle stream, const RowMeansArguments& arguments);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_SCORES_H_
