#include "engine/runner/step/step_layers.h"

#include <algorithm>
#include <array>

#include "engine/model/experts/expert_cache.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::Status StepLayers::Embed() {
  if (rows_.tokens.empty()) return absl::OkStatus();
  if (model().config.streams.used()) return EmbedStreams();
  return EmbedRows(rows_.tokens, buffers_.Rows(LayerArray::kResidual, 0, rows_.count(),
                                               model().config.hidden_size));
}

absl::Status StepLayers::EmbedRows(std::span<const int32_t> tokens, MatrixView into) {
  ANNULUS_RETURN_IF_ERROR(ops().embed(stream(), {&state_.weights().embedding, tokens, into}));
  if (model().embedding_scale == 1) return absl::OkStatus();
  return ops().scale(stream(), {into, model().embedding_scale});
}

absl::Status StepLayers::FillAngles() {
  for (size_t rope = 0; rope < buffers_.angles.size(); ++rope) {
    ANNULUS_RETURN_IF_ERROR(FillAngles(rope));
  }
  return absl::OkStatus();
}

// Runs of rows with the same frequencies and scale share a call; mostly that is all of them.
absl::Status StepLayers::FillAngles(size_t rope) {
  const auto frequencies = [&](size_t item) -> const std::vector<float>& {
    const auto& own = state_.sequences.at(plan_.items[item].sequence).inverse_frequencies;
    return own.empty() ? model().inverse_frequencies[rope] : own[rope];
  };
  const RopeConfig& config = model().config.ropes[rope];
  const StepBuffers::RopeAngles& angles = buffers_.angles[rope];
  for (size_t item = 0; item < plan_.items.size();) {
    const std::vector<float>& shared = frequencies(item);
    const int64_t first = rows_.item_first[item];
    do {
      ++item;
    } while (item < plan_.items.size() && &frequencies(item) == &shared);
    const int64_t last = rows_.item_end(item - 1);
    for (int64_t begin = first, end = first; begin < last; begin = end) {
      const float scale = ScaleAt(config, rows_.positions[begin]);
      end = config.growth == 0 ? last : begin + 1;
      while (end < last && ScaleAt(config, rows_.positions[end]) == scale) ++end;
      const int64_t count = end - begin;
      ANNULUS_RETURN_IF_ERROR(
          ops().rope_table(stream(), {std::span(rows_.positions).subspan(begin, count), shared,
                                      scale, DenseRows(angles.cosine, begin, count, config.pairs),
                                      DenseRows(angles.sine, begin, count, config.pairs)}));
    }
  }
  return absl::OkStatus();
}

absl::Status StepLayers::Run(int first, int end) {
  for (int layer = first; layer < end; ++layer) {
    ANNULUS_RETURN_IF_ERROR(Layer(layer, layer + 1 == end));
  }
  if (experts() != nullptr && met_experts_) experts()->CountStep(waited_);
  return absl::OkStatus();
}

// `is_last`: no other layer follows in this step.
absl::Status StepLayers::Layer(int layer, bool is_last) {
  const int64_t rows = layer >= model().first_lean ? rows_.active : rows_.count();
  const RankParts& parts = state_.parts;
  parts.heartbeat->Beat();
  ANNULUS_RETURN_IF_ERROR(
      Walk(graph(layer).attention, {.layer = layer, .rows = rows, .all = rows_.count()}));
  if (rows == 0) return absl::OkStatus();
  const StepArena::Position before = parts.arena->Mark();
  ANNULUS_RETURN_IF_ERROR(
      buffers_.Take(StepBuffers::Phase::kBlock, *parts.arena, *parts.host_arena));
  ANNULUS_RETURN_IF_ERROR(graph(layer).routing.empty() ? Slices(graph(layer).block, layer, rows)
                                                       : Experts(layer, rows));
  parts.arena->Rewind(before);  // what the next layer chooses by takes it
  ANNULUS_RETURN_IF_ERROR(Walk(graph(layer).ending, {.layer = layer, .rows = rows}));
  if (graph(layer).routing.empty() && !is_last) {
    WillRead(graph(layer + 1).attention, {.layer = layer + 1});
  }
  return absl::OkStatus();
}

// In slices, since the values in between are several times as wide as the rest.
absl::Status StepLayers::Slices(std::span<const Operation> block, int layer, int64_t rows) {
  const int64_t wide = state_.parts.backend->capabilities().wide_rows;
  for (int64_t first = 0; first < rows; first += wide) {
    const Pass pass{.layer = layer,
                    .first = first,
                    .rows = std::min(wide, rows - first),
                    .block = &weights(layer).mlp};
    WillRead(block, pass);
    ANNULUS_RETURN_IF_ERROR(Walk(block, pass));
  }
  return absl::OkStatus();
}

absl::Status StepLayers::Walk(std::span<const Operation> operations, const Pass& pass) {
  const bool blocks =
      ops().gated_block != nullptr && pass.rows >= ops().gated_block_rows && !pass.chosen;
  for (size_t i = 0; i < operations.size();) {
    const std::span<const Operation> rest = operations.subspan(i);
    if (blocks && BeginsWithGatedBlock(rest)) {
      ANNULUS_RETURN_IF_ERROR(GatedBlock(rest.first(kGatedBlockOperations), pass));
      i += kGatedBlockOperations;
    } else {
      ANNULUS_RETURN_IF_ERROR(RunOne(rest.front(), pass));
      ++i;
    }
    if (operations[i - 1].kind == Operation::Kind::kProducts) WillRead(operations.subspan(i), pass);
  }
  return absl::OkStatus();
}

absl::Status StepLayers::RunOne(const Operation& operation, const Pass& pass) {
  switch (operation.kind) {
    case Operation::Kind::kNorm:
      return Norm(operation, pass);
    case Operation::Kind::kProducts:
      return pass.chosen ? MultiplyChosen(operation, pass) : Multiply(operation, pass);
    case Operation::Kind::kRotate:
      return Rotate(operation, pass);
    case Operation::Kind::kAttend:
      return attention_.Run(pass.layer, pass.rows);
    case Operation::Kind::kAddGated:
      return AddGated(operation, pass);
    case Operation::Kind::kClear:
      return ops().scale(stream(), {View(operation.output, pass.rows, pass), 0});
    case Operation::Kind::kScale:
      return ops().scale(
          stream(), {View(operation.output, pass.rows, pass),
                     operation.factor != 0 ? operation.factor : weights(pass.layer).host_scale});
    case Operation::Kind::kCutOff:
      return ops().cut_off(stream(),
                           {View(operation.output, RowsOf(operation.rows, pass), pass),
                            *model().config.layers[static_cast<size_t>(pass.layer)].cutoff});
    case Operation::Kind::kPredict:
      return Predict(operation, pass);
    case Operation::Kind::kCorrect:
      return Correct(operation, pass);
    case Operation::Kind::kSpread:
      return Spread(operation, pass);
    case Operation::Kind::kActivate:
      break;
  }
  return Activate(operation, pass);
}

// Tells the stream which weights come next.
void StepLayers::WillRead(std::span<const Operation> operations, const Pass& pass) {
  const auto next = std::find_if(operations.begin(), operations.end(), [](const Operation& each) {
    return each.kind == Operation::Kind::kProducts;
  });
  // Which experts are chosen the host does not know.
  if (next == operations.end() || pass.chosen) return;
  std::array<std::span<const std::byte>, Operation::kMostProducts> ranges;
  size_t count = 0;
  for (const Product& product : next->products) {
    const PackedMatrix& matrix = product.WeightsIn(weights(pass.layer), pass.block).weight;
    ranges[count++] = {matrix.storage.data(), matrix.storage.size()};
  }
  stream().WillRead(std::span(ranges).first(count));
}

int64_t StepLayers::RowsOf(LayerRows rows, const Pass& pass) const {
  if (rows == LayerRows::kAll) return pass.all;
  return pass.chosen ? pass.rows * model().config.experts.routing.chosen : pass.rows;
}

// The first `rows` rows of the pass in an array.
MatrixView StepLayers::View(LayerArray array, int64_t rows, const Pass& pass) {
  const int64_t columns = graph(pass.layer).columns_of(array);
  if (array == LayerArray::kExpertInput) return {pass.expert_input, rows, columns, columns};
  if (array == LayerArray::kLayerInputs) {
    const int64_t own = model().config.layer_input_size;
    const int64_t offset = pass.first * columns + pass.layer * own;
    return {buffers_.of(array).data() + offset, rows, own, columns};
  }
  if (array == LayerArray::kActiveStream) {
    return StreamOf(model().config.streams.active, pass.first, rows);
  }
  return buffers_.Rows(array, InsideBlock(array) ? 0 : pass.first, rows, columns);
}

Activations StepLayers::ActivationsFor(const Product& product, DType dtype) const {
  return product.float_input ? Activations::kFloat : ActivationsOf(model().activations, dtype);
}

absl::Status StepLayers::Norm(const Operation& operation, const Pass& pass) {
  const int64_t rows = RowsOf(operation.rows, pass);
  if (rows == 0) return absl::OkStatus();
  const bool values = operation.norm == LayerNorm::kValue;
  const DeviceVector& weight =
      values ? state_.weights().ones : weights(pass.layer).norms[operation.norm];
  const bool own_weights =
      (operation.norm == LayerNorm::kQuery || operation.norm == LayerNorm::kKey) &&
      model().config.traits.head_norms == HeadNorms::kOwnWeights;
  const AttentionShape& shape = model().attention(pass.layer);
  const int64_t size = values ? shape.v_dim : own_weights ? shape.k_dim : weight.size();
  const auto in_parts = [&](LayerArray array) -> MatrixView {
    const MatrixView view = View(array, rows, pass);
    if (view.cols == size) return view;
    return {view.data, rows * view.cols / size, size, size};
  };
  return ops().norm(stream(), {in_parts(operation.input), weight.data(), model().config.norm,
                               in_parts(operation.output), operation.accumulate,
                               weights(pass.layer).norm_biases[operation.norm].data(),
                               own_weights ? weight.size() / size : 1});
}

// The operation's products, which it writes to `into`.
std::span<const LinearParams> StepLayers::ListProducts(const Operation& operation, const Pass& pass,
                                                       ProductParams& into) {
  size_t count = 0;
  for (const Product& product : operation.products) {
    const LinearWeights& linear = product.WeightsIn(weights(pass.layer), pass.block);
    const int64_t rows = RowsOf(product.rows, pass);
    into[count++] = {View(operation.input, rows, pass),
                     &linear.weight,
                     linear.bias.data(),
                     View(product.output, rows, pass),
                     operation.accumulate,
                     ActivationsFor(product, linear.weight.dtype)};
  }
  return std::span(into).first(count);
}

absl::Status StepLayers::Multiply(const Operation& operation, const Pass& pass) {
  ProductParams params;
  const std::span<const LinearParams> products = ListProducts(operation, pass, params);
  if (products.size() > 1) return Linears(ops(), stream(), products);
  return products[0].input.rows == 0 ? absl::OkStatus() : ops().linear(stream(), products[0]);
}

// `block`: kGatedBlockOperations.
absl::Status StepLayers::GatedBlock(std::span<const Operation> block, const Pass& pass) {
  ProductParams first;
  ProductParams last;
  const ModelConfig& config = model().config;
  return ops().gated_block(stream(), {ListProducts(block.front(), pass, first), config.activation,
                                      config.activation_alpha, config.activation_limit,
                                      ListProducts(block.back(), pass, last).front()});
}

// The input has a row for each row of the step, or already one for each choice.
absl::Status StepLayers::MultiplyChosen(const Operation& operation, const Pass& pass) {
  ANNULUS_CHECK(!operation.accumulate) << "products of chosen experts replace their output";
  for (const Product& product : operation.products) {
    const ExpertMatrices& matrices = product.MatricesIn(weights(pass.layer).experts);
    const int64_t choices = RowsOf(product.rows, pass);
    const bool shared = operation.input == LayerArray::kExpertInput;
    ANNULUS_RETURN_IF_ERROR(ops().expert_linear(
        stream(), {View(operation.input, shared ? pass.rows : choices, pass), &matrices,
                   buffers_.experts.few_chosen.data(), model().config.experts.routing.chosen,
                   View(product.output, choices, pass),
                   ActivationsFor(product, matrices.matrices.front()->dtype)}));
  }
  return absl::OkStatus();
}

absl::Status StepLayers::Rotate(const Operation& operation, const Pass& pass) {
  const ModelConfig& config = model().config;
  const LayerConfig& layer = config.layers[static_cast<size_t>(pass.layer)];
  const bool own = operation.output == LayerArray::kQuery && layer.query_rope != kNoRope;
  const auto rope = static_cast<size_t>(own ? layer.query_rope : layer.rope);
  const MatrixView values = View(operation.output, RowsOf(operation.rows, pass), pass);
  if (values.rows == 0) return absl::OkStatus();
  const int64_t pairs = config.ropes[rope].pairs;
  const StepBuffers::RopeAngles& angles = buffers_.angles[rope];
  const int dim = layer.attention.k_dim;
  return ops().rope(stream(), {values, static_cast<int>(values.cols / dim), dim,
                               DenseRows(angles.cosine, 0, values.rows, pairs),
                               DenseRows(angles.sine, 0, values.rows, pairs)});
}

absl::Status StepLayers::Activate(const Operation& operation, const Pass& pass) {
  const ModelConfig& config = model().config;
  const int64_t rows = RowsOf(operation.rows, pass);
  const MatrixView gate = View(operation.output, rows, pass);
  return ops().gated_mul(stream(),
                         {gate, View(operation.input, rows, pass), gate, config.activation,
                          config.activation_alpha, config.activation_limit});
}

}  // namespace annulus
