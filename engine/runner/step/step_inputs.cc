// What each layer has of a token besides the residual ("per-layer embeddings" of Gemma 4).
#include <algorithm>
#include <vector>

#include "engine/runner/step/step_layers.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::Status StepLayers::FillInputs() {
  if (model().config.layer_input_size == 0) return absl::OkStatus();
  StepArena& arena = *state_.parts.arena;
  const StepArena::Position before = arena.Mark();
  ANNULUS_RETURN_IF_ERROR(
      buffers_.Take(StepBuffers::Phase::kInputs, arena, *state_.parts.host_arena));
  const int64_t wide = state_.parts.backend->capabilities().wide_rows;
  for (int64_t first = 0; first < rows_.count(); first += wide) {
    ANNULUS_RETURN_IF_ERROR(FillInputs(first, std::min(wide, rows_.count() - first)));
  }
  arena.Rewind(before);
  return absl::OkStatus();
}

// (norm(projection of the embedding) + second embedding * sqrt(size)) / sqrt(2). The norm's weight
// and the second embedding's scale hold the division.
absl::Status StepLayers::FillInputs(int64_t first, int64_t rows) {
  const ModelConfig& config = model().config;
  const ModelWeights& weights = state_.weights();
  const int64_t size = config.layer_input_size;
  const int64_t columns = size * model().layers();
  const std::span<const int32_t> tokens = std::span(rows_.tokens).subspan(first, rows);
  // Tokens that have none take that of token 0.
  std::vector<int32_t> second(tokens.begin(), tokens.end());
  for (int32_t& token : second) token = token < config.layer_input_vocabulary ? token : 0;
  const MatrixView embedded = DenseRows(buffers_.inputs.embedded, 0, rows, config.hidden_size);
  const MatrixView projected = DenseRows(buffers_.inputs.projected, 0, rows, columns);
  const MatrixView made = buffers_.Rows(LayerArray::kLayerInputs, first, rows, columns);
  const LinearWeights& projection = weights.layer_projection;
  ANNULUS_RETURN_IF_ERROR(EmbedRows(tokens, embedded));
  ANNULUS_RETURN_IF_ERROR(
      ops().linear(stream(), {embedded, &projection.weight, projection.bias.data(), projected,
                              false, ActivationsOf(model().activations, projection.weight.dtype)}));
  ANNULUS_RETURN_IF_ERROR(ops().embed(stream(), {&weights.layer_embedding, second, made}));
  ANNULUS_RETURN_IF_ERROR(ops().scale(stream(), {made, model().layer_embedding_scale}));
  // The model divides the projection by sqrt(hidden_size), which a norm undoes but for its epsilon.
  NormRule rule = config.norm;
  rule.epsilon *= static_cast<float>(config.hidden_size);
  const auto in_parts = [&](const MatrixView& view) -> MatrixView {
    return {view.data, rows * model().layers(), size, size};
  };
  return ops().norm(stream(), {in_parts(projected), weights.layer_projection_norm.data(), rule,
                               in_parts(made), true});
}

}  // namespace annulus
