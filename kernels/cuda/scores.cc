// Block scores and their pooling, host side: assigns work to blocks of the grid.
#include "kernels/cuda/sm80/scores.h"

#include <iterator>
#include <span>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm80/elementwise.h"
#include "kernels/cuda/tuning/scores_plan.h"
#include "kernels/ops/checks.h"

namespace annulus::cuda {
namespace {

// Of everything that an item's view points to, and of the view itself.
size_t ItemBytes(const BlockScoresItem& item, size_t groups, size_t blocks) {
  return item.positions.size_bytes() + item.pages.size_bytes() + item.branches.size_bytes() +
         groups * sizeof(RowGroup) + blocks * sizeof(int32_t) + sizeof(ScoresItemView) +
         5 * CudaStream::kUploadAlignment;
}

ScoresItemView UploadItem(CudaStream& stream, const BlockScoresItem& item,
                          std::span<const RowGroup> groups, int64_t blocks) {
  ScoresItemView view{};
  view.query = item.query.data;
  view.query_stride = item.query.stride;
  view.positions = stream.Upload(item.positions);
  view.pages = stream.Upload(item.pages);
  view.groups = stream.Upload(groups);
  view.branches = stream.Upload(item.branches);
  view.branch_count = static_cast<int>(item.branches.size());
  view.scores = item.scores;
  view.blocks = blocks;
  view.groups_count = static_cast<int32_t>(groups.size());
  return view;
}

BlockScoresArguments ArgumentsOf(const BlockScoresParams& params) {
  BlockScoresArguments arguments{};
  arguments.layout = LayoutOf(params.shape);
  arguments.heads = params.heads;
  arguments.group = params.heads / params.shape.kv_heads;
  arguments.scale = params.scale;
  arguments.soft_cap = params.soft_cap;
  arguments.stride = params.stride;
  return arguments;
}

// Pages of float32, whose keys may not be rounded.
absl::Status BlockScoresInFloat(CudaStream& stream, const BlockScoresParams& params) {
  const FloatScoresPlan plan = PlanFloatScores(params);
  if (plan.units.empty()) return absl::OkStatus();
  size_t bytes = plan.units.size() * sizeof(ScoresUnit) + 2 * CudaStream::kUploadAlignment;
  for (size_t i = 0; i < params.items.size(); ++i) {
    bytes += ItemBytes(params.items[i], plan.groups[i].size(), 0);
  }
  ANNULUS_RETURN_IF_ERROR(stream.BeginUpload(bytes));
  std::vector<ScoresItemView> items;
  for (size_t i = 0; i < params.items.size(); ++i) {
    items.push_back(UploadItem(stream, params.items[i], plan.groups[i], plan.blocks[i]));
  }
  BlockScoresArguments arguments = ArgumentsOf(params);
  arguments.units = stream.Upload(std::span<const ScoresUnit>(plan.units));
  arguments.items = stream.Upload(std::span<const ScoresItemView>(items));
  ANNULUS_RETURN_IF_ERROR(stream.SendUpload());
  return StatusOf(
      LaunchBlockScores(stream.handle(), static_cast<int64_t>(plan.units.size()), arguments),
      "block_scores");
}

// The plan and the items on the device, and room for packed rows.
absl::StatusOr<TensorScoresArguments> UploadPlan(CudaStream& stream,
                                                 const BlockScoresParams& params,
                                                 const TensorScoresPlan& plan) {
  size_t bytes = plan.tiles.size() * sizeof(ScoresTile) +
                 plan.row_tiles.size() * sizeof(PackedTile) + 3 * CudaStream::kUploadAlignment;
  for (size_t i = 0; i < params.items.size(); ++i) {
    bytes += ItemBytes(params.items[i], plan.groups[i].size(), plan.block_pages[i].size());
  }
  const auto rows = static_cast<size_t>(plan.packed_tiles) * kScoredRows;
  const size_t packed_bytes = rows * static_cast<size_t>(plan.depth) * sizeof(uint16_t);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch,
                           stream.Scratch(packed_bytes + rows * sizeof(float)));
  ANNULUS_RETURN_IF_ERROR(stream.BeginUpload(bytes));
  std::vector<ScoresItemView> items;
  for (size_t i = 0; i < params.items.size(); ++i) {
    const std::span<const int32_t> block_pages(plan.block_pages[i]);
    ScoresItemView& view = items.emplace_back(
        UploadItem(stream, params.items[i], plan.groups[i], std::ssize(block_pages) - 1));
    view.block_pages = stream.Upload(block_pages);
    view.first_row_tile = plan.first_row_tile[i];
    const int32_t item_rows = view.groups_count * (params.heads / params.shape.kv_heads);
    view.row_tiles = (item_rows + plan.tile_rows - 1) / plan.tile_rows;
  }
  TensorScoresArguments arguments{};
  arguments.scores = ArgumentsOf(params);
  arguments.scores.items = stream.Upload(std::span<const ScoresItemView>(items));
  arguments.tiles = stream.Upload(std::span<const ScoresTile>(plan.tiles));
  arguments.row_tiles = stream.Upload(std::span<const PackedTile>(plan.row_tiles));
  arguments.block_tokens = params.block_tokens;
  arguments.parts = plan.parts;
  arguments.tile_rows = plan.tile_rows;
  arguments.depth = plan.depth;
  arguments.block_columns = plan.block_columns;
  arguments.packed = scratch;
  arguments.factors = reinterpret_cast<float*>(scratch + packed_bytes);
  ANNULUS_RETURN_IF_ERROR(stream.SendUpload());
  return arguments;
}

absl::Status BlockScoresByTensorCores(CudaStream& stream, const BlockScoresParams& params) {
  const TensorScoresPlan plan = PlanTensorScores(params, LayoutOf(params.shape).k_stride);
  if (plan.tiles.empty()) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(const TensorScoresArguments arguments, UploadPlan(stream, params, plan));
  ANNULUS_RETURN_IF_ERROR(StatusOf(
      LaunchPackQueries(stream.handle(), static_cast<int64_t>(plan.row_tiles.size()), arguments),
      "packing queries"));
  return StatusOf(
      LaunchTensorScores(stream.handle(), static_cast<int64_t>(plan.tiles.size()), arguments),
      "block_scores");
}

// The runs that hold pages [first, first + count), of which there is one or more.
std::span<float* const> RunsOf(const SummaryRuns& all, int64_t first, size_t count) {
  const int64_t begin = first / all.pages;
  const int64_t last = (first + static_cast<int64_t>(count) - 1) / all.pages;
  return all.runs.subspan(static_cast<size_t>(begin), static_cast<size_t>(last - begin + 1));
}

}  // namespace

absl::Status BlockScores(Stream& stream, const BlockScoresParams& params) {
  CheckBlockScores(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  if (params.shape.dtype == DType::kF32) return BlockScoresInFloat(*own, params);
  return BlockScoresByTensorCores(*own, params);
}

absl::Status ScoreSums(Stream& stream, const ScoreSumsParams& params) {
  CheckScoreSums(params);
  if (params.scores.rows == 0) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchScoreSums(own->handle(), params), "score_sums");
}

// Sums may lie in pinned memory, and every block of the grid reads some: they are copied to the
// device first.
absl::Status BlockMasses(Stream& stream, const BlockMassesParams& params) {
  CheckBlockMasses(params);
  const ConstMatrixView& scores = params.scores;
  if (params.ends.empty() || scores.cols == 0) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch,
                           own->Scratch(static_cast<size_t>(scores.rows) * sizeof(float)));
  ANNULUS_ASSIGN_OR_RETURN(const int32_t* const ends, own->UploadOne(params.ends));
  const int64_t groups = scores.rows / params.heads;
  const MatrixView sums{reinterpret_cast<float*>(scratch), groups, params.heads, params.heads};
  const ConstMatrixView given{params.sums, groups, params.heads, params.heads};
  ANNULUS_RETURN_IF_ERROR(StatusOf(
      LaunchScale(own->handle(), {given, 1, nullptr, nullptr, nullptr, sums, false}), "copying"));
  return StatusOf(LaunchBlockMasses(own->handle(), {scores, sums.data, ends, params.heads,
                                                    params.kv_heads, params.masses}),
                  "block_masses");
}

absl::Status KeySummary(Stream& stream, const KeySummaryParams& params) {
  CheckKeySummary(params);
  if (params.pages.empty()) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  const std::span<float* const> runs = RunsOf(params.to, params.first, params.pages.size());
  ANNULUS_RETURN_IF_ERROR(own->BeginUpload(params.pages.size_bytes() + runs.size_bytes() +
                                           2 * CudaStream::kUploadAlignment));
  KeySummaryArguments arguments{};
  arguments.layout = LayoutOf(params.shape);
  arguments.pages = own->Upload(params.pages);
  arguments.to = {own->Upload(runs), params.to.pages};
  arguments.first = params.first % params.to.pages;
  arguments.least = params.least;
  arguments.greatest = params.greatest;
  arguments.mean = params.mean;
  arguments.parts = params.parts;
  arguments.part_tokens = params.part_tokens();
  ANNULUS_RETURN_IF_ERROR(own->SendUpload());
  return StatusOf(
      LaunchKeySummary(own->handle(), static_cast<int64_t>(params.pages.size()), arguments),
      "key_summary");
}

// Queries may lie in pinned memory, and every block reads them: they are copied to the device
// first.
absl::Status SummaryScores(Stream& stream, const SummaryScoresParams& params) {
  CheckSummaryScores(params);
  const ConstMatrixView& query = params.query;
  if (query.rows == 0 || params.pages == 0) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  ANNULUS_ASSIGN_OR_RETURN(
      std::byte* const scratch,
      own->Scratch(static_cast<size_t>(query.rows * query.cols) * sizeof(float)));
  ANNULUS_ASSIGN_OR_RETURN(
      float* const* const runs,
      own->UploadOne(RunsOf(params.from, 0, static_cast<size_t>(params.pages))));
  const MatrixView copy{reinterpret_cast<float*>(scratch), query.rows, query.cols, query.cols};
  ANNULUS_RETURN_IF_ERROR(StatusOf(
      LaunchScale(own->handle(), {query, 1, nullptr, nullptr, nullptr, copy, false}), "copying"));
  SummaryScoresArguments arguments{};
  arguments.kv_heads = params.kv_heads;
  arguments.heads = params.heads;
  arguments.k_dim = params.k_dim;
  arguments.parts = params.parts;
  arguments.pages = params.pages;
  arguments.query = copy;
  arguments.from = {runs, params.from.pages};
  arguments.least = params.least;
  arguments.greatest = params.greatest;
  arguments.scores = params.scores;
  arguments.run = SummaryRun(params.k_dim, params.parts, own->device());
  return StatusOf(LaunchSummaryScores(own->handle(), arguments), "summary_scores");
}

absl::Status RowMeans(Stream& stream, const RowMeansParams& params) {
  CheckRowMeans(params);
  if (params.ends.empty()) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  ANNULUS_ASSIGN_OR_RETURN(const int32_t* const ends, own->UploadOne(params.ends));
  return StatusOf(LaunchRowMeans(own->handle(), {params.input, ends, params.output}), "row_means");
}

}  // namespace annulus::cuda
