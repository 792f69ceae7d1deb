#include "kernels/cuda/tuning/scores_plan.h"

#include <algorithm>
#include <bit>

#include "kernels/cuda/common/device.h"

namespace annulus::cuda {
namespace {

// Steps of depth that a block goes through at least, where there are so many: its first copies are
// waited for by nothing else.
constexpr int kStepsOfBlock = 64;

// The first page of each block of an item, and the end of the last.
std::vector<int32_t> BlockPages(std::span<const KvPageView> pages, int32_t block_tokens) {
  std::vector<int32_t> first;
  for (size_t p = 0; p < pages.size(); ++p) {
    const int32_t block = pages[p].first_position / block_tokens;
    if (p == 0 || block != pages[p - 1].first_position / block_tokens) {
      first.push_back(static_cast<int32_t>(p));
    }
  }
  first.push_back(static_cast<int32_t>(pages.size()));
  return first;
}

template <class T>
T RoundUpTo(T value, T multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Columns of a block of so many tiles of keys.
int BlockColumns(int tiles) {
  if (tiles > kScoredColumns) return RoundUpTo(tiles, kScoredColumns);
  return static_cast<int>(std::bit_ceil(static_cast<uint32_t>(std::max(tiles, kFewestColumns))));
}

// Blocks that one block of the grid scores.
int32_t BlocksTogether(const TensorScoresPlan& plan) {
  const int tiles = std::max(1, kStepsOfBlock / (plan.depth / kScoredDepth));
  return std::max(1, tiles * kScoredColumns / plan.block_columns);
}

// Adds the tiles of an item: all rows against the same keys, then the next.
void AddTiles(const BlockScoresParams& params, int32_t index, int32_t row_tiles,
              TensorScoresPlan& plan) {
  const BlockScoresItem& item = params.items[index];
  const std::vector<RowGroup>& groups = plan.groups[index];
  const std::vector<int32_t>& first = plan.block_pages[index];
  const int64_t group = params.heads / params.shape.kv_heads;
  const auto blocks = static_cast<int32_t>(first.size()) - 1;
  const int32_t together = BlocksTogether(plan);
  for (int32_t begin = 0; begin < blocks; begin += together) {
    const int32_t end = std::min(blocks, begin + together);
    for (int32_t tile = 0; tile < row_tiles; ++tile) {
      const int64_t row = (int64_t{tile} + 1) * plan.tile_rows - 1;
      const auto last = std::min(static_cast<int64_t>(groups.size()) - 1, row / group);
      int32_t seen = end;
      while (seen > begin &&
             item.pages[first[seen - 1]].first_position / params.stride > groups[last].tile) {
        --seen;
      }
      plan.tiles.push_back({index, tile, begin, seen, end});
    }
  }
}

}  // namespace

FloatScoresPlan PlanFloatScores(const BlockScoresParams& params) {
  FloatScoresPlan plan;
  for (size_t i = 0; i < params.items.size(); ++i) {
    const BlockScoresItem& item = params.items[i];
    plan.groups.push_back(RowGroups(item.positions, params.stride));
    const auto groups = static_cast<int32_t>(plan.groups.back().size());
    const std::vector<int32_t> first = BlockPages(item.pages, params.block_tokens);
    const auto blocks = static_cast<int32_t>(first.size()) - 1;
    for (int32_t block = 0; block < blocks; ++block) {
      for (int32_t group = 0; group < groups; group += kScoredGroups) {
        plan.units.push_back({static_cast<int32_t>(i), group,
                              std::min(kScoredGroups, groups - group), first[block],
                              first[block + 1], block});
      }
    }
    plan.blocks.push_back(blocks);
  }
  return plan;
}

int PackedDepth(int stride, int k_stride) {
  return std::max(2 * kScoredDepth, RoundUpTo(stride * k_stride, kScoredDepth));
}

TensorScoresPlan PlanTensorScores(const BlockScoresParams& params, int k_stride) {
  TensorScoresPlan plan;
  plan.parts = params.stride == 1 ? kExactParts : 1;
  plan.tile_rows = kScoredRows / 32 * (32 / plan.parts);
  plan.depth = PackedDepth(params.stride, k_stride);
  plan.block_columns = BlockColumns(params.block_tokens / params.stride);
  const int64_t group = params.heads / params.shape.kv_heads;
  for (size_t i = 0; i < params.items.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    const BlockScoresItem& item = params.items[i];
    plan.groups.push_back(RowGroups(item.positions, params.stride));
    plan.block_pages.push_back(BlockPages(item.pages, params.block_tokens));
    const int64_t rows = static_cast<int64_t>(plan.groups.back().size()) * group;
    const auto row_tiles = static_cast<int32_t>((rows + plan.tile_rows - 1) / plan.tile_rows);
    plan.first_row_tile.push_back(plan.packed_tiles);
    plan.packed_tiles += int64_t{row_tiles} * params.shape.kv_heads;
    for (int32_t tile = 0; tile < row_tiles; ++tile) plan.row_tiles.push_back({index, tile});
    AddTiles(params, index, row_tiles, plan);
  }
  return plan;
}

int SummaryRun(int k_dim, int parts, const DeviceInfo& device) {
  int run = kWarp;
  while (run > parts && SummaryBytes(k_dim, 2 * run) > device.shared_bytes / 4) run /= 2;
  return run;
}

}  // namespace annulus::cuda
