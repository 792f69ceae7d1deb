#include "bench/gpu/layer_run.h"

#include <utility>

#include "kernels/base/status_macros.h"

namespace annulus::bench {

absl::StatusOr<LayerRun> LayerRun::Create(Backend& backend, const LayerMatrices& matrices,
                                          int64_t rows, const float* residual,
                                          const float* weight) {
  LayerRun run(matrices, rows, residual, weight);
  const int64_t hidden = matrices.query.front().out_features;
  const int64_t keys = matrices.key.front().out_features;
  const int64_t wide = matrices.wide.front().out_features;
  const std::pair<DeviceBuffer*, int64_t> buffers[] = {
      {&run.normed_, hidden},   {&run.query_, hidden}, {&run.key_, keys}, {&run.value_, keys},
      {&run.attended_, hidden}, {&run.gate_, wide},    {&run.up_, wide},  {&run.result_, hidden}};
  for (const auto& [buffer, columns] : buffers) {
    ANNULUS_ASSIGN_OR_RETURN(*buffer,
                             backend.Allocate(static_cast<size_t>(rows * columns) * sizeof(float)));
  }
  return run;
}

MatrixView LayerRun::View(DeviceBuffer& buffer, int64_t columns) const {
  return {buffer.as<float>(), rows_, columns, columns};
}

LinearParams LayerRun::Product(const std::vector<PackedMatrix>& weights, DeviceBuffer& input,
                               DeviceBuffer& output) {
  const PackedMatrix& weight = weights[next_++ % weights.size()];
  LinearParams params;
  params.input = View(input, weight.in_features);
  params.weight = &weight;
  params.output = View(output, weight.out_features);
  params.activations = weight.dtype == DType::kF8E4M3 ? Activations::kFp8 : Activations::kFloat;
  return params;
}

absl::Status LayerRun::Norm(const OpTable& ops, Stream& stream, const float* input) {
  const int64_t hidden = matrices_.query.front().in_features;
  NormParams params;
  params.input = {input, rows_, hidden, hidden};
  params.weight = weight_;
  params.norm.epsilon = 1e-5f;
  params.output = View(normed_, hidden);
  return ops.norm(stream, params);
}

absl::Status LayerRun::Run(const OpTable& ops, Stream& stream) {
  ANNULUS_RETURN_IF_ERROR(Norm(ops, stream, residual_));
  const LinearParams first[] = {Product(matrices_.query, normed_, query_),
                                Product(matrices_.key, normed_, key_),
                                Product(matrices_.key, normed_, value_)};
  ANNULUS_RETURN_IF_ERROR(Linears(ops, stream, first));
  ANNULUS_RETURN_IF_ERROR(ops.linear(stream, Product(matrices_.query, query_, attended_)));
  ANNULUS_RETURN_IF_ERROR(Norm(ops, stream, attended_.as<float>()));
  const LinearParams second[] = {Product(matrices_.wide, normed_, gate_),
                                 Product(matrices_.wide, normed_, up_)};
  ANNULUS_RETURN_IF_ERROR(Linears(ops, stream, second));
  GatedMulParams gated;
  gated.gate = second[0].output;
  gated.up = second[1].output;
  gated.output = second[0].output;
  ANNULUS_RETURN_IF_ERROR(ops.gated_mul(stream, gated));
  return ops.linear(stream, Product(matrices_.down, gate_, result_));
}

std::vector<DeviceBuffer*> LayerRun::outputs() {
  return {&normed_, &query_, &key_, &value_, &attended_, &gate_, &up_, &result_};
}

double LayerRun::flops() const {
  const auto weights_of = [](const std::vector<PackedMatrix>& matrices) {
    return static_cast<double>(matrices.front().out_features) *
           static_cast<double>(matrices.front().in_features);
  };
  return 2 * static_cast<double>(rows_) *
         (2 * weights_of(matrices_.query) + 2 * weights_of(matrices_.key) +
          2 * weights_of(matrices_.wide) + weights_of(matrices_.down));
}

}  // namespace annulus::bench
