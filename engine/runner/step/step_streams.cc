// Several residuals of a row (StreamsConfig): made of the embedding before the first layer,
// predicted and corrected by every layer, and put together for the head.
#include <iterator>
#include <vector>

#include "engine/runner/step/step_head.h"
#include "engine/runner/step/step_layers.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Of mean squares of a stream, as Gemma 3n has it.
constexpr float kLeastMagnitude = 1e-5f;

}  // namespace

MatrixView StepLayers::StreamOf(int n, int64_t first, int64_t rows) {
  const ModelConfig& config = model().config;
  const int64_t hidden = config.hidden_size;
  return buffers_.Rows(LayerArray::kStreams, first, rows, config.streams.count * hidden)
      .columns(n * hidden, hidden);
}

// The first stream is the embedding, the others are projections of it with its magnitude.
absl::Status StepLayers::EmbedStreams() {
  const ModelConfig& config = model().config;
  const MatrixView first = StreamOf(0, 0, rows_.count());
  ANNULUS_RETURN_IF_ERROR(EmbedRows(rows_.tokens, first));
  for (int n = 1; n < config.streams.count; ++n) {
    const LinearWeights& projection =
        state_.weights().stream_projections[static_cast<size_t>(n) - 1];
    const MatrixView made = StreamOf(n, 0, rows_.count());
    ANNULUS_RETURN_IF_ERROR(
        ops().linear(stream(), {first, &projection.weight, nullptr, made, false,
                                ActivationsOf(model().activations, projection.weight.dtype)}));
    ANNULUS_RETURN_IF_ERROR(ops().match_magnitude(stream(), {made, first, kLeastMagnitude, made}));
  }
  return absl::OkStatus();
}

absl::Status StepLayers::Predict(const Operation& operation, const Pass& pass) {
  const int64_t rows = RowsOf(operation.rows, pass);
  if (rows == 0) return absl::OkStatus();
  return ops().predict_streams(stream(), {{View(LayerArray::kStreamLogits, rows, pass),
                                           weights(pass.layer).prediction.data()},
                                          model().config.streams.active,
                                          View(LayerArray::kStreams, rows, pass),
                                          View(operation.output, rows, pass)});
}

absl::Status StepLayers::Correct(const Operation& operation, const Pass& pass) {
  const StreamsConfig& streams = model().config.streams;
  const int64_t rows = RowsOf(operation.rows, pass);
  const LayerWeights& layer = weights(pass.layer);
  return ops().correct_streams(
      stream(), {{View(LayerArray::kStreamLogits, rows, pass), layer.correction.data()},
                 streams.active,
                 View(operation.input, rows, pass),
                 streams.scaled ? layer.corrected_scale.data() : nullptr,
                 View(LayerArray::kStreams, rows, pass),
                 View(operation.output, rows, pass)});
}

absl::Status StepLayers::Spread(const Operation& operation, const Pass& pass) {
  const ModelConfig& config = model().config;
  const int64_t rows = RowsOf(operation.rows, pass);
  const DeviceVector& weight = weights(pass.layer).norms[operation.norm];
  for (int n = 1; n < config.streams.count; ++n) {
    ANNULUS_RETURN_IF_ERROR(
        ops().norm(stream(), {View(operation.input, rows, pass), weight.data(), config.norm,
                              StreamOf(n, pass.first, rows), true}));
  }
  return absl::OkStatus();
}

// Their sum, where all have the magnitude of the first.
absl::Status StepHead::MergeStreams(std::span<const Row> rows, MatrixView merged) {
  const ModelConfig& config = state_.model().config;
  const OpTable& ops = state_.ops();
  const int64_t hidden = config.hidden_size;
  const int64_t columns = config.streams.count * hidden;
  std::vector<int32_t> places;
  for (const Row& row : rows) places.push_back(static_cast<int32_t>(row.row));
  const MatrixView all = buffers_.Rows(LayerArray::kStreams, 0, rows_.count(), columns);
  const MatrixView gathered = DenseRows(buffers_.head.streams, 0, std::ssize(rows), columns);
  const MatrixView projected = DenseRows(buffers_.head.projected, 0, std::ssize(rows), hidden);
  const MatrixView first = gathered.columns(0, hidden);
  ANNULUS_RETURN_IF_ERROR(ops.gather_rows(state_.stream(), {all, places, gathered}));
  ANNULUS_RETURN_IF_ERROR(
      ops.gather_rows(state_.stream(), {all.columns(0, hidden), places, merged}));
  for (int n = 1; n < config.streams.count; ++n) {
    const PackedMatrix& projection =
        state_.weights().stream_unprojections[static_cast<size_t>(n) - 1].weight;
    ANNULUS_RETURN_IF_ERROR(ops.linear(
        state_.stream(), {gathered.columns(n * hidden, hidden), &projection, nullptr, projected,
                          false, ActivationsOf(state_.model().activations, projection.dtype)}));
    ANNULUS_RETURN_IF_ERROR(ops.match_magnitude(
        state_.stream(), {projected, first, kLeastMagnitude, merged, /*accumulate=*/true}));
  }
  return absl::OkStatus();
}

// The model norms their mean. Their sum gives the same if the norm's epsilon grows as squares do.
absl::Status StepHead::NormStreams(std::span<const Row> rows, MatrixView normed) {
  const ModelConfig& config = state_.model().config;
  ANNULUS_RETURN_IF_ERROR(MergeStreams(rows, normed));
  NormRule rule = config.norm;
  const auto count = static_cast<float>(config.streams.count);
  rule.epsilon *= count * count;
  return state_.ops().norm(state_.stream(),
                           {normed, state_.weights().final_norm.data(), rule, normed});
}

}  // namespace annulus
