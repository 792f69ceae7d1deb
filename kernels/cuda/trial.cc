#include "kernels/cuda/trial.h"

#include "kernels/cuda/linear_ways.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm90/linear_cluster.h"
#include "kernels/cuda/tuning/cluster_plan.h"

namespace annulus::cuda {
namespace {

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
  return LinearsBy({.with_library = true, .many_rows = LaunchManyRows}, stream, parts);
}

absl::Status TrialLinear(Stream& stream, const LinearParams& params) {
  return TrialLinears(stream, {&params, 1});
}

}  // namespace

std::optional<OpTable> TrialOf(const OpTable& table) {
  if (table.attention != HopperAttention) return std::nullopt;
  OpTable trial = table;
  trial.name += "-trial";
  trial.attention = SectionedHopperAttention;
  trial.linear = TrialLinear;
  trial.linears = TrialLinears;
  return trial;
}

}  // namespace annulus::cuda
