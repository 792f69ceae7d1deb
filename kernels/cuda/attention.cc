// Attention, on the host side: plans the blocks, copies plan and tables of pages, launches.
#include "kernels/cuda/sm80/attention.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm90/attention.h"
#include "kernels/cuda/tuning/attention_path.h"
#include "kernels/cuda/tuning/attention_plan.h"
#include "kernels/ops/checks.h"

namespace annulus::cuda {
namespace {

size_t UploadBytes(const AttentionParams& params, const AttentionPlan& plan) {
  size_t bytes = 0;
  size_t arrays = 4;
  for (const AttentionItem& item : params.items) {
    bytes += item.positions.size_bytes() + item.pages.size_bytes() +
             item.blocks.pages.size_bytes() + item.branches.size_bytes();
    arrays += 4;
  }
  bytes += params.items.size() * sizeof(AttentionItemView);
  bytes += (plan.prefill.size() + plan.decode.size()) * sizeof(AttentionUnit);
  bytes += plan.merges.size() * sizeof(AttentionMerge);
  return bytes + arrays * CudaStream::kUploadAlignment;
}

AttentionItemView UploadItem(CudaStream& stream, const AttentionItem& item) {
  AttentionItemView view{};
  view.query = item.query.data;
  view.query_stride = item.query.stride;
  view.positions = stream.Upload(item.positions);
  view.pages = stream.Upload(item.pages);
  view.page_offset = static_cast<int64_t>(item.page_offset);
  view.lists = item.blocks.full ? nullptr : stream.Upload(item.blocks.pages);
  view.branches = stream.Upload(item.branches);
  view.branch_count = static_cast<int>(item.branches.size());
  view.o = item.state.o;
  view.lse = item.state.lse;
  view.merges = item.merges;
  return view;
}

// Where the states of shared-out units go: o, then lse.
absl::Status TakePartials(CudaStream& stream, const AttentionPlan& plan, int v_dim,
                          AttentionArguments& arguments) {
  if (plan.partial_rows == 0) return absl::OkStatus();
  const auto rows = static_cast<size_t>(plan.partial_rows);
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch,
                           stream.Scratch(rows * (v_dim + 1) * sizeof(float)));
  arguments.partial_o = reinterpret_cast<float*>(scratch);
  arguments.partial_lse = arguments.partial_o + rows * v_dim;
  return absl::OkStatus();
}

absl::Status Run(CudaStream& stream, const KvPageShape& pages, AttentionShape shape, int64_t units,
                 const AttentionArguments& arguments) {
  const AttentionInstance instance = InstanceFor(shape, pages, stream.device());
  int code = 0;
  switch (pages.dtype) {
    case DType::kF32:
      code = LaunchAttentionFloat(stream.handle(), units, arguments);
      break;
    case DType::kBF16:
      code = LaunchAttentionBf16(stream.handle(), instance.shape, instance.dim, units, arguments);
      break;
    case DType::kF16:
      code = LaunchAttentionF16(stream.handle(), instance.shape, instance.dim, units, arguments);
      break;
    default:
      code = LaunchAttentionNarrow(stream.handle(), instance.shape, instance.dim, units, arguments);
  }
  return StatusOf(code, "attention");
}

// Units of the prefill shape, by `path`.
absl::Status RunPrefill(CudaStream& stream, const PrefillPath& path, const AttentionParams& params,
                        int64_t units, const AttentionArguments& arguments) {
  if (units == 0) return absl::OkStatus();
  const DType dtype = params.shape.dtype;
  if (!path.hopper) return Run(stream, params.shape, AttentionShape::kPrefill, units, arguments);
  const PageTensors tensors = TensorsOfPages(params, path.grid);
  const int dim = std::max(params.shape.k_dim, params.shape.v_dim);
  HopperAttentionArguments own{};
  own.attention = arguments;
  own.units = units;
  own.first_page = path.grid.first;
  own.page_shift = path.grid.shift;
  own.box_slots = BoxSlots(params.shape.page_tokens, dim);
  ANNULUS_ASSIGN_OR_RETURN(own.keys, EncodeTensorMap(tensors.keys));
  ANNULUS_ASSIGN_OR_RETURN(own.values, EncodeTensorMap(tensors.values));
  const int64_t blocks = std::min<int64_t>(units, stream.device().multiprocessors);
  const auto launch = dtype == DType::kBF16  ? LaunchHopperAttentionBf16
                      : dtype == DType::kF16 ? LaunchHopperAttentionF16
                                             : LaunchHopperAttentionNarrow;
  return StatusOf(launch(stream.handle(), dim, blocks, own), "attention");
}

absl::Status Attend(Stream& stream, const AttentionParams& params, bool hopper) {
  CheckAttention(params);
  const KvPageShape& shape = params.shape;
  ANNULUS_CHECK(shape.k_dim <= kMaxAttentionDim && shape.v_dim <= kMaxAttentionDim)
      << "head_dim " << shape.k_dim << "/" << shape.v_dim;
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  const PrefillPath path = PathOfPrefill(own->device(), params, hopper);
  const AttentionPlan plan = PlanAttention(params, own->device().multiprocessors, path.rows);
  if (plan.prefill.empty() && plan.decode.empty()) return absl::OkStatus();
  AttentionArguments arguments{};
  ANNULUS_RETURN_IF_ERROR(TakePartials(*own, plan, shape.v_dim, arguments));
  ANNULUS_RETURN_IF_ERROR(own->BeginUpload(UploadBytes(params, plan)));
  std::vector<AttentionItemView> items;
  for (const AttentionItem& item : params.items) items.push_back(UploadItem(*own, item));
  arguments.items = own->Upload(std::span<const AttentionItemView>(items));
  const auto* const prefill = own->Upload(std::span<const AttentionUnit>(plan.prefill));
  const auto* const decode = own->Upload(std::span<const AttentionUnit>(plan.decode));
  const auto* const merges = own->Upload(std::span<const AttentionMerge>(plan.merges));
  ANNULUS_RETURN_IF_ERROR(own->SendUpload());
  arguments.layout = LayoutOf(shape);
  arguments.heads = params.heads;
  arguments.group = params.heads / shape.kv_heads;
  arguments.scale = params.scale;
  arguments.soft_cap = params.soft_cap;
  arguments.window = params.window;
  arguments.units = prefill;
  ANNULUS_RETURN_IF_ERROR(
      RunPrefill(*own, path, params, static_cast<int64_t>(plan.prefill.size()), arguments));
  arguments.units = decode;
  ANNULUS_RETURN_IF_ERROR(Run(*own, shape, AttentionShape::kDecode,
                              static_cast<int64_t>(plan.decode.size()), arguments));
  if (plan.merges.empty()) return absl::OkStatus();
  return StatusOf(LaunchAttentionMerge(own->handle(), static_cast<int64_t>(plan.merges.size()),
                                       plan.largest_merge,
                                       {merges, arguments.items, params.heads, arguments.group,
                                        shape.v_dim, arguments.partial_o, arguments.partial_lse}),
                  "the merge of attention");
}

}  // namespace

absl::Status Attention(Stream& stream, const AttentionParams& params) {
  return Attend(stream, params, false);
}

absl::Status HopperAttention(Stream& stream, const AttentionParams& params) {
  return Attend(stream, params, true);
}

}  // namespace annulus::cuda
