#include "kernels/cuda/trial.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/attention_ways.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/linear_ways.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm80/rows/rows_op.h"
#include "kernels/cuda/sm90/attention_pairs.h"
#include "kernels/cuda/sm90/coded_rows.h"
#include "kernels/cuda/sm90/few_rows_cluster.h"
#include "kernels/cuda/sm90/float8_attention.h"
#include "kernels/cuda/sm90/linear_cluster.h"
#include "kernels/cuda/sm90/linear_warpgroups.h"
#include "kernels/cuda/tuning/cluster_plan.h"
#include "kernels/cuda/tuning/coded_rows_plan.h"
#include "kernels/cuda/tuning/warpgroup_plan.h"
#include "kernels/ops/checks.h"

namespace annulus::cuda {
namespace {

int LaunchFewRows(StreamHandle stream, const DeviceInfo& device, const LinearArguments& linear) {
  const FewRowsStripes stripes =
      StripesOf(linear.output.rows, linear.weight.out_features, linear.weight.in_features, device);
  if (stripes.tiles == 0) return LaunchStreamed(stream, device, linear);
  return LaunchFewRowsCluster(stream, {linear, stripes});
}

int LaunchManyRows(StreamHandle stream, const DeviceInfo& device,
                   const ManyRowsArguments& arguments) {
  const LinearArguments& linear = arguments.linear;
  const int tiles = ClusterTiles(linear.output.rows, linear.weight.out_features, device);
  if (tiles == 0) return LaunchLinearTensor(stream, arguments);
  ManyRowsArguments split = arguments;
  split.tiles = tiles;
  return LaunchLinearCluster(stream, split);
}

absl::Status TrialLinears(Stream& stream, std::span<const LinearParams> parts) {
  return LinearsBy({.with_library = true,
                    .few_rows = LaunchFewRows,
                    .many_rows = LaunchManyRows,
                    .coded_rows = LaunchCodedRows},
                   stream, parts);
}

absl::Status TrialLinear(Stream& stream, const LinearParams& params) {
  return TrialLinears(stream, {&params, 1});
}

int LaunchWholeDepth(StreamHandle stream, const DeviceInfo&, const ManyRowsArguments& arguments) {
  return LaunchLinearTensor(stream, arguments);
}

int LaunchTogether(StreamHandle stream, const DeviceInfo& device,
                   std::span<const LinearArguments> products) {
  WarpgroupArguments arguments{};
  std::copy(products.begin(), products.end(), arguments.products);
  arguments.count = static_cast<int>(products.size());
  int64_t tiles = 0;
  for (const LinearArguments& product : products) {
    tiles += WarpgroupTiles(product.weight.out_features);
  }
  const LinearArguments& first = products.front();
  arguments.shape = WarpgroupShapeOf(
      {first.output.rows, first.weight.in_features, tiles, first.weight.dtype}, device);
  return LaunchLinearWarpgroups(stream, arguments);
}

absl::Status WarpgroupLinears(Stream& stream, std::span<const LinearParams> parts) {
  return LinearsBy({.with_library = true,
                    .many_rows = LaunchWholeDepth,
                    .joint = {ProductsTogether, LaunchTogether}},
                   stream, parts);
}

absl::Status WarpgroupLinear(Stream& stream, const LinearParams& params) {
  return WarpgroupLinears(stream, {&params, 1});
}

absl::Status KeepOrLaunch(Stream& stream, const RowsOp& op) {
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  if (!MakesCodedRows(op, own->device())) {
    return StatusOf(LaunchRowsOp(own->handle(), op), op.is_norm() ? "norm" : "gated_mul");
  }
  own->KeepRows(op);
  return absl::OkStatus();
}

absl::Status TrialNorm(Stream& stream, const NormParams& params) {
  if (params.accumulate) return Norm(stream, params);
  CheckNorm(params);
  return KeepOrLaunch(stream, {params, {}});
}

absl::Status TrialGatedMul(Stream& stream, const GatedMulParams& params) {
  CheckGatedMul(params);
  return KeepOrLaunch(stream, {{}, params});
}

absl::Status PairedAttention(Stream& stream, const AttentionParams& params) {
  return PairedHopperAttention(stream, params, LaunchPairedAttention);
}

absl::Status Float8HopperAttention(Stream& stream, const AttentionParams& params) {
  return HopperAttentionBy(LaunchFloat8Attention, stream, params);
}

}  // namespace

std::optional<OpTable> TrialOf(const OpTable& table) {
  if (table.attention != HopperAttention) return std::nullopt;
  OpTable trial = table;
  trial.name += "-trial";
  trial.attention = SectionedHopperAttention;
  trial.linear = TrialLinear;
  trial.linears = TrialLinears;
  trial.norm = TrialNorm;
  trial.gated_mul = TrialGatedMul;
  return trial;
}

std::optional<OpTable> PairsTrialOf(const OpTable& table) {
  std::optional<OpTable> trial = TrialOf(table);
  if (!trial.has_value()) return trial;
  trial->name += "-pairs";
  trial->attention = PairedAttention;
  return trial;
}

void LetKernelsOverlap(Stream& stream, bool overlap) {
  CudaStream& own = AsCudaStream(stream);
  ANNULUS_CHECK(own.device().major == 9 && own.device().minor == 0)
      << "kernels that overlap at compute capability " << own.device().major << "."
      << own.device().minor << "; allowed: 9.0";
  own.handle()->overlaps = overlap;
}

std::optional<OpTable> WarpgroupTrialOf(const OpTable& table) {
  if (table.attention != HopperAttention) return std::nullopt;
  OpTable trial = table;
  trial.name += "-warpgroups";
  trial.linear = WarpgroupLinear;
  trial.linears = WarpgroupLinears;
  return trial;
}

std::optional<OpTable> Float8TrialOf(const OpTable& table) {
  if (table.attention != HopperAttention) return std::nullopt;
  OpTable trial = table;
  trial.name += "-fp8";
  trial.attention = Float8HopperAttention;
  return trial;
}

}  // namespace annulus::cuda
