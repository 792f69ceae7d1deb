// Scores of blocks, on the host side: which block of the grid computes what.
#include "kernels/cuda/sm80/scores.h"

#include <algorithm>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cuda {
namespace {

// The row groups and units of a whole op.
struct ScoresPlan {
  std::vector<std::vector<ScoredRows>> groups;  // [item]
  std::vector<int64_t> blocks;                  // [item]
  std::vector<ScoresUnit> units;
};

std::vector<ScoredRows> GroupRows(std::span<const int32_t> positions, int32_t stride) {
  std::vector<ScoredRows> groups;
  for (size_t r = 0; r < positions.size(); ++r) {
    const int32_t tile = positions[r] / stride;
    if (stride > 1 && !groups.empty() && groups.back().tile == tile) {
      ++groups.back().count;
    } else {
      groups.push_back({static_cast<int32_t>(r), 1, tile});
    }
  }
  return groups;
}

// Adds the units of pages [begin, end), which are one block of keys.
void AddUnits(int32_t item, int32_t block, int32_t begin, int32_t end, int32_t groups,
              std::vector<ScoresUnit>& units) {
  for (int32_t first = 0; first < groups; first += kScoredGroups) {
    units.push_back({item, first, std::min(kScoredGroups, groups - first), begin, end, block});
  }
}

ScoresPlan Plan(const BlockScoresParams& params) {
  ScoresPlan plan;
  for (size_t i = 0; i < params.items.size(); ++i) {
    const BlockScoresItem& item = params.items[i];
    plan.groups.push_back(GroupRows(item.positions, params.stride));
    const auto groups = static_cast<int32_t>(plan.groups.back().size());
    const auto block_of = [&](int32_t page) {
      return item.pages[page].first_position / params.block_tokens;
    };
    const auto pages = static_cast<int32_t>(item.pages.size());
    int32_t blocks = 0;
    for (int32_t begin = 0; begin < pages;) {
      int32_t end = begin + 1;
      while (end < pages && block_of(end) == block_of(begin)) ++end;
      AddUnits(static_cast<int32_t>(i), blocks++, begin, end, groups, plan.units);
      begin = end;
    }
    plan.blocks.push_back(blocks);
  }
  return plan;
}

size_t UploadBytes(const BlockScoresParams& params, const ScoresPlan& plan) {
  size_t bytes = plan.units.size() * sizeof(ScoresUnit) +
                 params.items.size() * (sizeof(ScoresItemView) + 4 * CudaStream::kUploadAlignment) +
                 2 * CudaStream::kUploadAlignment;
  for (size_t i = 0; i < params.items.size(); ++i) {
    bytes += params.items[i].positions.size_bytes() + params.items[i].pages.size_bytes() +
             params.items[i].branches.size_bytes() + plan.groups[i].size() * sizeof(ScoredRows);
  }
  return bytes;
}

}  // namespace

absl::Status BlockScores(Stream& stream, const BlockScoresParams& params) {
  CheckBlockScores(params);
  const ScoresPlan plan = Plan(params);
  if (plan.units.empty()) return absl::OkStatus();
  CudaStream& own = AsCudaStream(stream);
  ANNULUS_RETURN_IF_ERROR(own.BeginUpload(UploadBytes(params, plan)));
  std::vector<ScoresItemView> items;
  for (size_t i = 0; i < params.items.size(); ++i) {
    const BlockScoresItem& item = params.items[i];
    items.push_back(
        {item.query.data, item.query.stride, own.Upload(item.positions), own.Upload(item.pages),
         own.Upload(std::span<const ScoredRows>(plan.groups[i])), own.Upload(item.branches),
         static_cast<int>(item.branches.size()), item.scores, plan.blocks[i]});
  }
  BlockScoresArguments arguments{};
  arguments.layout = LayoutOf(params.shape);
  arguments.units = own.Upload(std::span<const ScoresUnit>(plan.units));
  arguments.items = own.Upload(std::span<const ScoresItemView>(items));
  arguments.heads = params.heads;
  arguments.group = params.heads / params.shape.kv_heads;
  arguments.scale = params.scale;
  arguments.soft_cap = params.soft_cap;
  arguments.stride = params.stride;
  ANNULUS_RETURN_IF_ERROR(own.SendUpload());
  return StatusOf(
      LaunchBlockScores(own.handle(), static_cast<int64_t>(plan.units.size()), arguments),
      "block_scores");
}

absl::Status KeySummary(Stream& stream, const KeySummaryParams& params) {
  CheckKeySummary(params);
  if (params.pages.empty()) return absl::OkStatus();
  CudaStream& own = AsCudaStream(stream);
  ANNULUS_ASSIGN_OR_RETURN(const KvPageView* const pages, own.UploadOne(params.pages));
  return StatusOf(LaunchKeySummary(own.handle(), static_cast<int64_t>(params.pages.size()),
                                   {LayoutOf(params.shape), pages, params.least, params.greatest,
                                    params.mean, params.parts, params.part_tokens()}),
                  "key_summary");
}

absl::Status SummaryScores(Stream& stream, const SummaryScoresParams& params) {
  CheckSummaryScores(params);
  return StatusOf(LaunchSummaryScores(AsCudaStream(stream).handle(),
                                      {params.kv_heads, params.heads, params.k_dim, params.pages,
                                       params.query, params.least, params.greatest, params.scores}),
                  "summary_scores");
}

absl::Status RowMeans(Stream& stream, const RowMeansParams& params) {
  CheckRowMeans(params);
  if (params.ends.empty()) return absl::OkStatus();
  CudaStream& own = AsCudaStream(stream);
  ANNULUS_ASSIGN_OR_RETURN(const int32_t* const ends, own.UploadOne(params.ends));
  return StatusOf(LaunchRowMeans(own.handle(), {params.input, ends, params.output}), "row_means");
}

}  // namespace annulus::cuda
