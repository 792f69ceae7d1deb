// Attention, on the host side: plans the blocks, copies plan and tables of pages, launches. What a
// layer before has planned and copied is used again (kept_attention.h).
#include "kernels/cuda/sm80/attention.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/attention_ways.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kept_attention.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm80/shard_merge.h"
#include "kernels/cuda/sm90/attention.h"
#include "kernels/cuda/sm90/attention_pairs.h"
#include "kernels/cuda/sm90/float8_attention.h"
#include "kernels/cuda/tuning/attention_path.h"
#include "kernels/cuda/tuning/attention_plan.h"
#include "kernels/cuda/tuning/invariant_plan.h"
#include "kernels/cuda/tuning/page_runs.h"
#include "kernels/cuda/tuning/unit_order.h"
#include "kernels/cuda/tuning/unit_pairs.h"
#include "kernels/ops/checks.h"

namespace annulus::cuda {
namespace {

// Which kernels a table has, whether their order of summation depends on positions alone, whether
// units of many rows start in sections (SortUnits), how it launches those of them that pairs of
// blocks can serve (null: as the others), and what launches those over fp8 pages of small heads, if
// it is not LaunchHopperAttentionNarrow.
struct AttentionKind {
  bool hopper = false;
  bool invariant = false;
  bool sections = false;
  PairedAttentionLaunch pairs = nullptr;
  HopperLaunch float8 = nullptr;
};

// What an op launches.
struct AttentionWork {
  int whole_boxes = 1;  // see HopperAttentionArguments
  AttentionPlan plan;
  // If the op is row-invariant: see InvariantPlan.
  std::vector<PageRuns> runs;
  std::vector<ShardMerge> shard_merges;
  std::vector<uint8_t> leaves;
  bool pairs = false;  // plan.prefill is in pairs

  // One for each merge and then, of pairs, the number of those that were taken.
  size_t counters() const { return plan.merges.size() + (pairs ? 1 : 0); }
};

absl::StatusOr<PrefillPath> PathOf(const DeviceInfo& device, const AttentionParams& params,
                                   const AttentionKind& kind) {
  if (kind.invariant) return PathOfInvariant(device, params, kind.hopper);
  PrefillPath path = PathOfPrefill(device, params, kind.hopper);
  if (kind.sections) path.section_bytes = kSectionBytes;
  path.pairs = kind.pairs != nullptr && PairsServe(params, path);
  return path;
}

AttentionWork PlanWork(const DeviceInfo& device, const AttentionParams& params,
                       const PrefillPath& path, bool invariant) {
  AttentionWork work;
  if (!invariant) {
    work.plan = PlanAttention(params, device.multiprocessors, path.rows,
                              BlocksOfFewRows(params.shape, device), path.section_bytes);
    work.pairs = path.pairs;
    if (path.pairs) {
      work.plan.prefill = PairUnits(work.plan.prefill);
      work.plan.rounds.front().prefill = std::ssize(work.plan.prefill);
    }
    return work;
  }
  InvariantShape shape{path.rows, /*tile_pages=*/1};
  if (path.hopper && params.window > 0) {
    // Pages before the window may be present or not.
    const int dim = std::max(params.shape.k_dim, params.shape.v_dim);
    shape.tile_pages = TilePages(params.shape.page_tokens, dim);
    work.whole_boxes = TileBoxes(params.shape.page_tokens, dim);
  }
  InvariantPlan plan = PlanInvariantAttention(params, shape, MostRoundRows(params.shape.v_dim));
  work.plan = std::move(plan.attention);
  work.runs = std::move(plan.runs);
  work.shard_merges = std::move(plan.shard_merges);
  work.leaves = std::move(plan.leaves);
  return work;
}

// Of an op that finds nothing kept.
size_t UploadBytes(const AttentionParams& params, const AttentionWork& work) {
  const AttentionPlan& plan = work.plan;
  size_t bytes = 0;
  size_t arrays = 7;
  for (const AttentionItem& item : params.items) {
    bytes += item.positions.size_bytes() + item.branches.size_bytes();
    if (work.runs.empty()) bytes += item.pages.size_bytes() + item.blocks.pages.size_bytes();
    arrays += 4;
  }
  for (size_t i = 0; i < work.runs.size(); ++i) {
    const AttentionItem& item = params.items[i];
    const size_t pages = work.runs[i].pages.size();
    bytes += item.blocks.full
                 ? pages * sizeof(KvPageView)
                 : pages * sizeof(int32_t) + (item.pages.size() + 1) * sizeof(KvPageView);
  }
  bytes += params.items.size() * sizeof(AttentionItemView);
  bytes += (plan.prefill.size() + plan.decode.size()) * sizeof(AttentionUnit);
  bytes += plan.merges.size() * sizeof(AttentionMerge) + work.counters() * sizeof(int32_t);
  bytes += work.shard_merges.size() * sizeof(ShardMerge) + work.leaves.size();
  return bytes + arrays * CudaStream::kUploadAlignment;
}

// Of one that does.
size_t ItemBytes(const PlacedAttention& placed) {
  return placed.items.size() * sizeof(AttentionItemView) +
         static_cast<size_t>(placed.counters) * sizeof(int32_t) + 2 * CudaStream::kUploadAlignment;
}

// A page without keys, which no row sees. Kernels may read where it lies.
KvPageView AbsentPage(const AttentionItem& item) {
  constexpr int32_t kFarPosition = int32_t{1} << 30;
  return {item.pages.front().data, kFarPosition, 0};
}

// Pages in the order of their runs: the views themselves or, for block lists, which may share them,
// their numbers.
void UploadRuns(CudaStream& stream, const AttentionItem& item, const PageRuns& runs,
                AttentionItemView& view) {
  if (item.pages.empty()) return;
  const auto absent = static_cast<int32_t>(item.pages.size());
  if (item.blocks.full) {
    std::vector<KvPageView> pages;
    pages.reserve(runs.pages.size());
    for (const int32_t page : runs.pages) {
      pages.push_back(page == kAbsentPage ? AbsentPage(item) : item.pages[page]);
    }
    view.pages = stream.Upload(std::span<const KvPageView>(pages));
    return;
  }
  std::vector<KvPageView> pages(item.pages.begin(), item.pages.end());
  pages.push_back(AbsentPage(item));
  view.pages = stream.Upload(std::span<const KvPageView>(pages));
  std::vector<int32_t> lists = runs.pages;
  std::replace(lists.begin(), lists.end(), kAbsentPage, absent);
  view.lists = stream.Upload(std::span<const int32_t>(lists));
}

// The arrays of an item. `runs`: null if pages keep their order.
AttentionItemView UploadArrays(CudaStream& stream, const AttentionItem& item,
                               const PageRuns* runs) {
  AttentionItemView view{};
  view.positions = stream.Upload(item.positions);
  if (runs != nullptr) {
    UploadRuns(stream, item, *runs, view);
  } else {
    view.pages = stream.Upload(item.pages);
    view.lists = item.blocks.full ? nullptr : stream.Upload(item.blocks.pages);
  }
  view.branches = stream.Upload(item.branches);
  view.branch_count = static_cast<int>(item.branches.size());
  view.merges = item.merges;
  return view;
}

// Where the states of shared-out units go: o, then lse.
absl::Status TakePartials(CudaStream& stream, int64_t partial_rows, int v_dim,
                          AttentionArguments& arguments) {
  if (partial_rows == 0) return absl::OkStatus();
  const auto rows = static_cast<size_t>(partial_rows);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch,
                           stream.Scratch(rows * (v_dim + 1) * sizeof(float)));
  arguments.partial_o = reinterpret_cast<float*>(scratch);
  arguments.partial_lse = arguments.partial_o + rows * v_dim;
  return absl::OkStatus();
}

// Plans an op and puts its arrays into the upload area, with room left for its items.
absl::StatusOr<PlacedAttention> Place(CudaStream& stream, const AttentionParams& params,
                                      const PrefillPath& path, bool invariant,
                                      AttentionArguments& arguments) {
  const AttentionWork work = PlanWork(stream.device(), params, path, invariant);
  const AttentionPlan& plan = work.plan;
  PlacedAttention placed;
  if (plan.prefill.empty() && plan.decode.empty()) return placed;
  placed.rounds = plan.rounds;
  placed.partial_rows = plan.partial_rows;
  placed.largest_merge = plan.largest_merge;
  placed.counters = static_cast<int64_t>(work.counters());
  placed.in_shards = !work.runs.empty();
  placed.whole_boxes = work.whole_boxes;
  placed.items.reserve(params.items.size());
  ANNULUS_RETURN_IF_ERROR(TakePartials(stream, plan.partial_rows, params.shape.v_dim, arguments));
  ANNULUS_RETURN_IF_ERROR(stream.BeginUpload(UploadBytes(params, work)));
  for (size_t i = 0; i < params.items.size(); ++i) {
    const PageRuns* const runs = work.runs.empty() ? nullptr : &work.runs[i];
    placed.items.push_back(UploadArrays(stream, params.items[i], runs));
  }
  placed.prefill = stream.Upload(std::span<const AttentionUnit>(plan.prefill));
  placed.decode = stream.Upload(std::span<const AttentionUnit>(plan.decode));
  placed.merges = stream.Upload(std::span<const AttentionMerge>(plan.merges));
  placed.shard_merges = stream.Upload(std::span<const ShardMerge>(work.shard_merges));
  placed.leaves = stream.Upload(std::span<const uint8_t>(work.leaves));
  return placed;
}

// What an earlier op has placed for rows and pages like these, with room for the items in the
// upload area. Null: there is none, or the area had to be refilled to make that room.
absl::StatusOr<PlacedAttention*> FindPlaced(CudaStream& stream, const AttentionParams& params,
                                            const PrefillPath& path, bool invariant,
                                            AttentionArguments& arguments) {
  const uint64_t turn = stream.upload_turn();
  PlacedAttention* const placed = stream.kept_attention().Find(params, path, invariant, turn);
  if (placed == nullptr) return placed;
  ANNULUS_RETURN_IF_ERROR(
      TakePartials(stream, placed->partial_rows, params.shape.v_dim, arguments));
  ANNULUS_RETURN_IF_ERROR(stream.BeginUpload(ItemBytes(*placed)));
  return stream.upload_turn() == turn ? placed : nullptr;
}

// Uploads what each op has of its own, and sends all that lies in the area.
absl::Status SendItems(CudaStream& stream, const AttentionParams& params, PlacedAttention& placed,
                       AttentionArguments& arguments) {
  for (size_t i = 0; i < params.items.size(); ++i) {
    const AttentionItem& item = params.items[i];
    AttentionItemView& view = placed.items[i];
    view.query = item.query.data;
    view.query_stride = item.query.stride;
    view.page_offset = static_cast<int64_t>(item.page_offset);
    view.o = item.state.o;
    view.lse = item.state.lse;
  }
  arguments.items = stream.Upload(std::span<const AttentionItemView>(placed.items));
  const std::vector<int32_t> none(static_cast<size_t>(placed.counters));
  arguments.arrivals = const_cast<int32_t*>(stream.Upload(std::span<const int32_t>(none)));
  return stream.SendUpload();
}

absl::Status Run(CudaStream& stream, const KvPageShape& pages, AttentionShape shape, int64_t units,
                 const AttentionArguments& arguments) {
  const int dim = std::max(pages.k_dim, pages.v_dim);
  int code = 0;
  switch (pages.dtype) {
    case DType::kF32:
      code = LaunchAttentionFloat(stream.handle(), units, arguments);
      break;
    case DType::kBF16:
      code = LaunchAttentionBf16(stream.handle(), shape, dim, units, arguments);
      break;
    case DType::kF16:
      code = LaunchAttentionF16(stream.handle(), shape, dim, units, arguments);
      break;
    default:
      code = LaunchAttentionNarrow(stream.handle(), shape, dim, units, arguments);
  }
  return StatusOf(code, "attention");
}

HopperLaunch HopperLaunchOf(const KvPageShape& pages, int dim, HopperLaunch float8) {
  if (pages.dtype == DType::kBF16) return LaunchHopperAttentionBf16;
  if (pages.dtype == DType::kF16) return LaunchHopperAttentionF16;
  const bool coded = pages.dtype == DType::kF8E4M3 && dim <= kMostFloat8Dim;
  return coded && float8 != nullptr ? float8 : LaunchHopperAttentionNarrow;
}

// How units of the prefill shape are launched.
struct PrefillWay {
  const PrefillPath& path;
  PairedAttentionLaunch pairs;  // if path.pairs
  HopperLaunch float8;          // as in AttentionKind
  int whole_boxes;
  int32_t* next;  // see PairedAttentionArguments
};

absl::Status RunPrefill(CudaStream& stream, const PrefillWay& way, const AttentionParams& params,
                        int64_t units, const AttentionArguments& arguments) {
  const PrefillPath& path = way.path;
  if (units == 0) return absl::OkStatus();
  if (!path.hopper) return Run(stream, params.shape, AttentionShape::kPrefill, units, arguments);
  const PageTensors tensors = TensorsOfPages(params, path.grid);
  const int dim = std::max(params.shape.k_dim, params.shape.v_dim);
  HopperAttentionArguments own{};
  own.attention = arguments;
  own.units = units;
  own.first_page = path.grid.first;
  own.page_shift = path.grid.shift;
  own.box_slots = BoxSlots(params.shape.page_tokens, dim);
  own.whole_boxes = way.whole_boxes;
  ANNULUS_ASSIGN_OR_RETURN(own.keys, EncodeTensorMap(tensors.keys));
  ANNULUS_ASSIGN_OR_RETURN(own.values, EncodeTensorMap(tensors.values));
  const int64_t blocks = std::min<int64_t>(units, stream.device().multiprocessors);
  if (path.pairs) {
    const int64_t clusters = std::max<int64_t>(blocks / kPairBlocks, 1);
    return StatusOf(way.pairs(stream.handle(), clusters, {own, way.next}),
                    "attention by pairs of blocks");
  }
  const HopperLaunch launch = HopperLaunchOf(params.shape, dim, way.float8);
  return StatusOf(launch(stream.handle(), dim, blocks, own), "attention");
}

// Merges the parts of a round: `merges` of the plan's or of the shards'.
absl::Status RunMerges(CudaStream& stream, const PlacedAttention& placed, int64_t merges,
                       const ShardMergeArguments& arguments) {
  if (merges == 0) return absl::OkStatus();
  const int largest = placed.largest_merge;
  const int code = placed.in_shards ? LaunchShardMerge(stream.handle(), merges, largest, arguments)
                                    : LaunchAttentionMerge(stream.handle(), merges, largest,
                                                           arguments.attention);
  return StatusOf(code, "the merge of attention");
}

// Launches one round after the other.
absl::Status RunRounds(CudaStream& stream, const PlacedAttention& placed, const PrefillPath& path,
                       const AttentionKind& kind, const AttentionParams& params,
                       AttentionArguments arguments) {
  // The last counter is that of pairs.
  int32_t* const next = path.pairs ? arguments.arrivals + placed.counters - 1 : nullptr;
  const PrefillWay way{path, kind.pairs, kind.float8, placed.whole_boxes, next};
  const AttentionUnit* prefill = placed.prefill;
  const AttentionUnit* decode = placed.decode;
  ShardMergeArguments merges = {placed.shard_merges,
                                placed.leaves,
                                {placed.merges, arguments.items, params.heads, arguments.group,
                                 params.shape.v_dim, arguments.partial_o, arguments.partial_lse}};
  for (const AttentionRound& round : placed.rounds) {
    arguments.units = prefill;
    ANNULUS_RETURN_IF_ERROR(RunPrefill(stream, way, params, round.prefill, arguments));
    arguments.units = decode;
    ANNULUS_RETURN_IF_ERROR(
        Run(stream, params.shape, AttentionShape::kDecode, round.decode, arguments));
    ANNULUS_RETURN_IF_ERROR(RunMerges(stream, placed, round.merges, merges));
    prefill += round.prefill;
    decode += round.decode;
    merges.attention.merges += round.merges;
    merges.merges += round.merges;
  }
  return absl::OkStatus();
}

absl::Status Attend(Stream& stream, const AttentionParams& params, const AttentionKind& kind) {
  CheckAttention(params);
  const KvPageShape& shape = params.shape;
  ANNULUS_CHECK(shape.k_dim <= kMaxAttentionDim && shape.v_dim <= kMaxAttentionDim)
      << "head_dim " << shape.k_dim << "/" << shape.v_dim;
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  ANNULUS_ASSIGN_OR_RETURN(const PrefillPath path, PathOf(own->device(), params, kind));
  AttentionArguments arguments{};
  ANNULUS_ASSIGN_OR_RETURN(auto* placed, FindPlaced(*own, params, path, kind.invariant, arguments));
  PlacedAttention fresh;
  if (placed == nullptr) {
    ANNULUS_ASSIGN_OR_RETURN(fresh, Place(*own, params, path, kind.invariant, arguments));
    if (fresh.rounds.empty()) return absl::OkStatus();
    placed = &fresh;
  }
  ANNULUS_RETURN_IF_ERROR(SendItems(*own, params, *placed, arguments));
  arguments.merges = placed->merges;
  arguments.layout = LayoutOf(shape);
  arguments.heads = params.heads;
  arguments.group = params.heads / shape.kv_heads;
  arguments.scale = params.scale;
  arguments.soft_cap = params.soft_cap;
  arguments.window = params.window;
  ANNULUS_RETURN_IF_ERROR(RunRounds(*own, *placed, path, kind, params, arguments));
  if (placed == &fresh) own->kept_attention().Keep(std::move(fresh), own->upload_turn());
  return absl::OkStatus();
}

// Items with branches go to other kernels than those without (HopperServes), so what an op's other
// items have must not matter.
absl::Status AttendInvariant(Stream& stream, const AttentionParams& params, bool hopper) {
  std::vector<AttentionItem> dilated;
  std::vector<AttentionItem> others;
  for (const AttentionItem& item : params.items) {
    (item.branches.empty() ? others : dilated).push_back(item);
  }
  for (const std::vector<AttentionItem>* items : {&dilated, &others}) {
    if (items->empty()) continue;
    AttentionParams part = params;
    part.items = *items;
    ANNULUS_RETURN_IF_ERROR(Attend(stream, part, {hopper, /*invariant=*/true}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Attention(Stream& stream, const AttentionParams& params) {
  return Attend(stream, params, {});
}

absl::Status HopperAttention(Stream& stream, const AttentionParams& params) {
  return Attend(stream, params, {.hopper = true});
}

absl::Status SectionedHopperAttention(Stream& stream, const AttentionParams& params) {
  return Attend(stream, params, {.hopper = true, .sections = true});
}

absl::Status PairedHopperAttention(Stream& stream, const AttentionParams& params,
                                   PairedAttentionLaunch launch) {
  return Attend(stream, params, {.hopper = true, .sections = true, .pairs = launch});
}

absl::Status HopperAttentionBy(HopperLaunch float8, Stream& stream, const AttentionParams& params) {
  return Attend(stream, params, {.hopper = true, .float8 = float8});
}

absl::Status InvariantAttention(Stream& stream, const AttentionParams& params) {
  return AttendInvariant(stream, params, /*hopper=*/false);
}

absl::Status InvariantHopperAttention(Stream& stream, const AttentionParams& params) {
  return AttendInvariant(stream, params, /*hopper=*/true);
}

}  // namespace annulus::cuda
