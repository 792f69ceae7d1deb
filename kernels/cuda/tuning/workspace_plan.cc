#include "kernels/cuda/tuning/workspace_plan.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm80/attention.h"
#include "kernels/cuda/sm80/linear.h"
#include "kernels/cuda/sm80/scores.h"
#include "kernels/cuda/sm90/attention.h"
#include "kernels/cuda/tuning/attention_path.h"
#include "kernels/cuda/tuning/attention_plan.h"
#include "kernels/cuda/tuning/invariant_plan.h"
#include "kernels/cuda/tuning/linear_plan.h"
#include "kernels/cuda/tuning/scores_plan.h"
#include "kernels/ops/sampling.h"

namespace annulus::cuda {
namespace {

constexpr size_t kFloat = sizeof(float);

size_t Up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }
int64_t Pieces(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }

// Of one array of so many elements, and what aligns it.
template <class T>
size_t Array(int64_t count) {
  return static_cast<size_t>(count) * sizeof(T) + kUploadAlignment;
}

int64_t Group(const WorkShape& most) { return most.heads / std::max(1, most.pages.kv_heads); }

// Rows of a unit at most. Those of sm90/ may attend pages that these of sm80/ would not.
int MostUnitRows(const WorkShape& most, const DeviceInfo& device) {
  const int dim = std::max(most.pages.k_dim, most.pages.v_dim);
  if (most.pages.dtype == DType::kF32) return AttentionRows(AttentionShape::kDecode, dim);
  const int rows = AttentionRows(AttentionShape::kPrefill, dim);
  return device.major == 9 && device.minor == 0 ? std::max(rows, kHopperRows) : rows;
}

// Query blocks of all items, each of which has a list for every kv head.
int64_t MostBlocks(const WorkShape& most) {
  return Pieces(most.attended_rows, most.pages.page_tokens) + 2 * most.items;
}

// Units before they are shared out: a block's last may be short. Instances for more dimensions than
// there are have half of the rows.
int64_t MostUnits(const WorkShape& most, const DeviceInfo& device) {
  const int least = most.pages.dtype == DType::kF32
                        ? MostUnitRows(most, device)
                        : AttentionRows(AttentionShape::kPrefill, kMaxAttentionDim);
  const int64_t blocks = most.lists ? MostBlocks(most) : most.items;
  const int64_t pairs = most.attended_rows * Group(most);
  return most.pages.kv_heads * (Pieces(pairs, least) + blocks);
}

// An op of attention that shares its units out has so many parts.
int64_t MostParts(const DeviceInfo& device) {
  return 2 * int64_t{kMostBlocks} * device.multiprocessors;
}

// Runs (tuning/page_runs.h) of items that have so many pages together: a shard's pages lie in as
// many spans as they fill and, at both ends, begin.
int64_t MostRuns(const WorkShape& most, int64_t items) {
  const int64_t filled = most.named_pages * most.pages.page_tokens / kAttentionSpan;
  return std::min(most.named_pages, filled + 2 * int64_t{most.shards} * items);
}

// Entries for absent pages in so many runs.
int64_t AbsentPages(const WorkShape& most, int64_t runs) {
  const int dim = std::max(most.pages.k_dim, most.pages.v_dim);
  return runs * (TilePages(most.pages.page_tokens, dim) - 1);
}

// The arrays of one op whose units and merges are so many, but for pages and lists.
size_t UnitUploads(int64_t units, int64_t merges) {
  return Array<AttentionUnit>(units) + 3 * kUploadAlignment + Array<AttentionMerge>(merges) +
         Array<int32_t>(merges);
}
// The same of one whose parts merge in the tree of shards.
size_t ShardUploads(int64_t units, int64_t merges) {
  return Array<AttentionUnit>(units) + 2 * kUploadAlignment + Array<ShardMerge>(merges) +
         Array<uint8_t>(units);
}

size_t AttentionUploads(const WorkShape& most, const DeviceInfo& device) {
  size_t bytes = Array<int32_t>(most.attended_rows) + Array<KvPageView>(most.named_pages) +
                 Array<AttentionItemView>(most.items) +
                 static_cast<size_t>(most.items) * 4 * kUploadAlignment;
  const int64_t lists =
      most.lists ? most.pages.kv_heads * (Pieces(most.rows, most.pages.page_tokens) + 2) : 0;
  if (most.row_invariant) {
    const int64_t parts = MostUnits(most, device) * MostRuns(most, 1);
    const int64_t absent = AbsentPages(most, MostRuns(most, most.items)) + most.items;
    bytes += ShardUploads(parts, MostUnits(most, device)) + Array<KvPageView>(absent) +
             Array<int32_t>(AbsentPages(most, lists * MostRuns(most, 1)));
  } else {
    bytes += UnitUploads(MostUnits(most, device) + MostParts(device), MostParts(device));
  }
  if (!most.lists) return bytes;
  // Every list may name all pages of its item; a list of branches is short.
  return bytes + Array<int32_t>(lists * most.named_pages) +
         static_cast<size_t>(most.items) * Array<DilatedBranch>(kMostBranches);
}

// Row groups of an item: stride 1 has the fewest rows and the most groups of them.
int64_t Groups(const WorkShape& most, int64_t stride) {
  if (stride == 1) return most.exact_rows;
  return std::min(most.rows, most.rows / stride + 2);
}

int64_t RowTiles(const WorkShape& most, int64_t stride) {
  const int parts = stride == 1 ? kExactParts : 1;
  const int64_t tile_rows = kScoredRows / 32 * (32 / parts);
  return Pieces(Groups(most, stride) * Group(most), tile_rows);
}

// One item. A tile of the grid has a block of keys or more, and a block has a page or more.
size_t ScoresUploads(const WorkShape& most) {
  if (!most.lists) return 0;
  size_t largest = 0;
  for (const int64_t stride : {1, 8, 16}) {
    const int64_t groups = Groups(most, stride);
    const int64_t tiles =
        most.named_pages * (RowTiles(most, stride) + Pieces(groups, kScoredGroups));
    largest = std::max(
        largest, Array<RowGroup>(groups) + Array<PackedTile>(RowTiles(most, stride)) +
                     static_cast<size_t>(tiles) * std::max(sizeof(ScoresTile), sizeof(ScoresUnit)));
  }
  return largest + Array<int32_t>(most.rows) + Array<KvPageView>(most.named_pages) +
         Array<int32_t>(most.named_pages + 1) + Array<ScoresItemView>(1) +
         Array<DilatedBranch>(kMostBranches) + 4 * kUploadAlignment;
}

size_t SampleUploads(const WorkShape& most) {
  const size_t row = sizeof(SampleRow) + 2 * Array<uint32_t>(SeenWords(most.vocabulary)) +
                     Array<LogitEdit>(most.vocabulary);
  return static_cast<size_t>(most.sampled_rows) * row + kUploadAlignment;
}

}  // namespace

size_t MostProductScratch(const ProductShape& shape, const DeviceInfo& device, bool library) {
  const int64_t rows = shape.rows;
  const bool codes = shape.activations == Activations::kFp8;
  const bool in_float = shape.dtype == DType::kF32 || shape.dtype == DType::kF16;
  size_t most = 0;
  const auto also = [&](const ProductScratch& parts) { most = std::max(most, parts.total()); };
  if (codes) also(ScratchOfFewCodes(shape.chosen ? rows : std::min(rows, kFewRows), shape.in));
  if (shape.chosen || rows <= kFewRows) return most;
  if (!in_float) also(ScratchOfManyRows(rows, shape.in, codes));
  if (!library || rows < kLibraryRows) return most;
  if (codes && Fp8ProductsOf(device) != Fp8Products::kNone) {
    // The library may have no way with scales, and then leaves sums aside.
    also(ScratchOfFp8Library(rows, shape.in, shape.out, shape.accumulate));
  } else if (shape.dtype == DType::kBF16) {
    also(ScratchOfLibrary(rows, shape.in));
  } else if (!codes && IsWidened(shape.dtype) && rows >= kWidenedRows) {
    also(ScratchOfWidened(rows, shape.in, shape.out, shape.accumulate));
  }
  return most;
}

size_t MostAttentionScratch(const WorkShape& most, const DeviceInfo& device) {
  if (most.row_invariant) {
    const int64_t parts = MostRuns(most, 1);
    const int64_t round =
        std::max(MostRoundRows(most.pages.v_dim), MostUnitRows(most, device) * parts);
    const int64_t rows = std::min(most.attended_rows * most.heads * parts, round);
    return static_cast<size_t>(rows) * (static_cast<size_t>(most.pages.v_dim) + 1) * kFloat;
  }
  const int64_t rows = MostPartialRows(most.attended_rows * most.heads, MostUnitRows(most, device),
                                       device.multiprocessors);
  return static_cast<size_t>(rows) * (static_cast<size_t>(most.pages.v_dim) + 1) * kFloat;
}

size_t MostScoresScratch(const WorkShape& most) {
  if (!most.lists) return 0;
  const auto columns = static_cast<size_t>(most.heads) * static_cast<size_t>(most.pages.k_dim);
  const int64_t query_blocks = Pieces(most.rows, most.pages.page_tokens) + 2;
  size_t largest = static_cast<size_t>(std::min(most.rows, query_blocks)) * columns * kFloat;
  // Sums of row groups, of the smallest stride that has any.
  constexpr int64_t kLeastStride = 8;
  largest =
      std::max(largest, static_cast<size_t>(RowTiles(most, kLeastStride) * most.heads) * kFloat);
  if (most.pages.dtype == DType::kF32) return largest;
  for (const int64_t stride : {1, 8, 16}) {
    const auto rows =
        static_cast<size_t>(RowTiles(most, stride) * most.pages.kv_heads) * kScoredRows;
    const auto depth =
        static_cast<size_t>(PackedDepth(static_cast<int>(stride), LayoutOf(most.pages).k_stride));
    largest = std::max(largest, rows * (depth * sizeof(uint16_t) + kFloat));
  }
  return largest;
}

size_t MostUploads(const WorkShape& most, const DeviceInfo& device) {
  // Pages and slots of appended rows; rows and weights of moved ones; positions and frequencies.
  const size_t by_row =
      Array<std::byte*>(most.rows) + Array<int32_t>(most.rows) + Array<float>(kMaxAttentionDim);
  // Addresses of pages whose summaries are made, and of runs of summaries.
  const size_t by_page = 2 * Array<std::byte*>(most.named_pages);
  return std::max(
      {AttentionUploads(most, device), ScoresUploads(most), SampleUploads(most), by_row, by_page});
}

size_t HeldUploads(const WorkShape& most, const DeviceInfo& device) {
  if (most.held_layers == 0) return 0;
  const int64_t heads =
      most.pages.kv_heads * Pieces(Group(most), AttentionRows(AttentionShape::kDecode, 0));
  size_t layer = Array<std::byte*>(most.items) + Array<int32_t>(most.items) +
                 static_cast<size_t>(most.items) *
                     (Array<int32_t>(1) + sizeof(AttentionItemView) + 3 * kUploadAlignment) +
                 3 * kUploadAlignment;
  if (most.row_invariant) {
    const int64_t runs = MostRuns(most, most.items);
    layer +=
        ShardUploads(heads * runs, heads * most.items) + Array<KvPageView>(AbsentPages(most, runs));
  } else {
    layer += UnitUploads(heads * most.items + MostParts(device), MostParts(device));
  }
  // Before the layers ids and positions; behind them tokens are chosen, mostly without edits.
  const size_t outside = 4 * Array<int32_t>(most.items) +
                         static_cast<size_t>(most.sampled_rows) *
                             (sizeof(SampleRow) + 2 * Array<uint32_t>(SeenWords(most.vocabulary)));
  return static_cast<size_t>(most.held_layers) * layer + Array<KvPageView>(most.held_pages) +
         outside;
}

WorkspaceBytes PlanWorkspace(const WorkShape& most, const DeviceInfo& device, bool library) {
  WorkspaceBytes bytes;
  bytes.scratch = std::max(MostAttentionScratch(most, device), MostScoresScratch(most));
  for (const ProductShape& product : most.products) {
    bytes.scratch = std::max(bytes.scratch,
                             MostProductScratch(product, device, library && !most.row_invariant));
  }
  bytes.scratch = Up(bytes.scratch, 256);
  bytes.uploads =
      Up(std::max({kLeastUploads, MostUploads(most, device), HeldUploads(most, device)}), 256);
  return bytes;
}

}  // namespace annulus::cuda
