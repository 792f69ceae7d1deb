// The layer graph: one for all families (see ModelConfig).
#include <algorithm>
#include <array>

#include "engine/runner/step_run.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

LinearParams StepRun::Product(const LinearWeights& weights, ConstMatrixView input,
                              MatrixView output, bool accumulate) const {
  const Activations activations = ActivationsOf(model().activations, weights.weight.dtype);
  return {input, &weights.weight, weights.bias.data(), output, accumulate, activations};
}

absl::Status StepRun::Linear(const LinearWeights& weights, ConstMatrixView input, MatrixView output,
                             bool accumulate) {
  if (input.rows == 0) return absl::OkStatus();
  return ops().linear(stream(), Product(weights, input, output, accumulate));
}

// The next product will be by these weights.
void StepRun::WillRead(std::initializer_list<const LinearWeights*> weights) {
  std::array<std::span<const std::byte>, Stream::kMostRanges> ranges;
  size_t count = 0;
  for (const LinearWeights* each : weights) {
    const DeviceBuffer& storage = each->weight.storage;
    ranges[count++] = {storage.data(), storage.size()};
  }
  stream().WillRead(std::span(ranges).first(count));
}

absl::Status StepRun::Norm(const DeviceVector& weight, ConstMatrixView input, MatrixView output,
                           bool accumulate) {
  if (input.rows == 0) return absl::OkStatus();
  return ops().rms_norm(stream(),
                        {input, weight.data(), model().config.rms_norm_eps, output, accumulate});
}

absl::Status StepRun::Embed() {
  if (row_token_.empty()) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(
      ops().embed(stream(), {&own_weights().embedding, row_token_, buffers_.residual}));
  if (model().embedding_scale != 1) {
    ANNULUS_RETURN_IF_ERROR(ops().scale(stream(), {buffers_.residual, model().embedding_scale}));
  }
  return absl::OkStatus();
}

// Runs of items with the same frequencies share a call; mostly that is all of them.
absl::Status StepRun::FillAngles(size_t rope) {
  const auto all = static_cast<int64_t>(row_position_.size());
  const auto frequencies = [&](size_t item) -> const std::vector<float>& {
    const auto& own = state_.sequences.at(plan_.items[item].sequence).inverse_frequencies;
    return own.empty() ? model().inverse_frequencies[rope] : own[rope];
  };
  for (size_t item = 0; item < plan_.items.size();) {
    const std::vector<float>& shared = frequencies(item);
    const int64_t first = item_first_[item];
    do {
      ++item;
    } while (item < plan_.items.size() && &frequencies(item) == &shared);
    const int64_t count = (item < plan_.items.size() ? item_first_[item] : all) - first;
    if (count == 0) continue;
    const RopeAngles& angles = buffers_.angles[rope];
    ANNULUS_RETURN_IF_ERROR(ops().rope_table(
        stream(),
        {std::span(row_position_).subspan(first, count), shared, model().config.ropes[rope].scale,
         angles.cosine.row_range(first, count), angles.sine.row_range(first, count)}));
  }
  return absl::OkStatus();
}

// Norm and rotation of queries or keys, in place.
absl::Status StepRun::Prepare(int layer, const DeviceVector& norm, MatrixView values, int heads) {
  const ModelConfig& config = model().config;
  if (values.rows == 0) return absl::OkStatus();
  if (config.qk_norm == QkNorm::kWhole) {
    ANNULUS_RETURN_IF_ERROR(Norm(norm, values, values));
  } else if (config.qk_norm == QkNorm::kPerHead) {
    const MatrixView each{values.data, values.rows * heads, config.head_dim, config.head_dim};
    ANNULUS_RETURN_IF_ERROR(Norm(norm, each, each));
  }
  const int32_t rope = config.layers[layer].rope;
  if (rope == kNoRope) return absl::OkStatus();
  const RopeAngles& angles = buffers_.angles[rope];
  return ops().rope(stream(),
                    {values, heads, config.head_dim, angles.cosine.row_range(0, values.rows),
                     angles.sine.row_range(0, values.rows)});
}

// Rows [first, first + rows) of what a block reads: normed where the family norms before the block.
absl::StatusOr<ConstMatrixView> StepRun::BlockInput(const DeviceVector& norm, int64_t first,
                                                    int64_t rows) {
  const MatrixView residual = buffers_.residual.row_range(first, rows);
  if (!model().config.pre_norms) return ConstMatrixView(residual);
  const MatrixView normed = buffers_.normed.row_range(first, rows);
  ANNULUS_RETURN_IF_ERROR(Norm(norm, residual, normed));
  return ConstMatrixView(normed);
}

// Rows from `first` on: residual += block's last projection of `input`, normed first where the
// family does so. The block has read its input by now, so those rows of `normed` are free.
absl::Status StepRun::AddToResidual(const LinearWeights& weights, ConstMatrixView input,
                                    int64_t first, const DeviceVector& post_norm) {
  const MatrixView residual = buffers_.residual.row_range(first, input.rows);
  if (!model().config.post_norms) return Linear(weights, input, residual, true);
  const MatrixView added = buffers_.normed.row_range(first, input.rows);
  ANNULUS_RETURN_IF_ERROR(Linear(weights, input, added));
  return Norm(post_norm, added, residual, true);
}

// In the last layer only rows whose logits are wanted need queries and what follows; all rows need
// keys and values, which later steps attend.
absl::Status StepRun::Layer(int layer) {
  const LayerWeights& weights = own_weights().layers[layer];
  const ModelConfig& config = model().config;
  const int64_t all = static_cast<int64_t>(row_position_.size());
  const int64_t rows = layer + 1 == model().layers() ? active_rows_ : all;
  Buffers& b = buffers_;
  state_.parts.heartbeat->Beat();
  ANNULUS_ASSIGN_OR_RETURN(const ConstMatrixView input, BlockInput(weights.attention_norm, 0, all));
  const MatrixView query = b.query.row_range(0, rows);
  ANNULUS_RETURN_IF_ERROR(
      Linears(ops(), stream(),
              std::array{Product(weights.key, input, b.key), Product(weights.value, input, b.value),
                         Product(weights.query, input.row_range(0, rows), query)}));
  WillRead({&weights.output});
  ANNULUS_RETURN_IF_ERROR(Prepare(layer, weights.key_norm, b.key, config.kv_heads));
  ANNULUS_RETURN_IF_ERROR(Prepare(layer, weights.query_norm, query, config.heads));
  ANNULUS_RETURN_IF_ERROR(Append(layer));
  ANNULUS_RETURN_IF_ERROR(Attend(layer, rows));
  if (rows == 0) return absl::OkStatus();
  const ConstMatrixView attended{b.state.o, rows, model().query_columns(), model().query_columns()};
  ANNULUS_RETURN_IF_ERROR(AddToResidual(weights.output, attended, 0, weights.attention_post_norm));
  StepArena& arena = *state_.parts.arena;
  const StepArena::Position before = arena.Mark();
  ANNULUS_RETURN_IF_ERROR(TakeGated());
  ANNULUS_RETURN_IF_ERROR(FeedForward(layer, rows));
  arena.Rewind(before);  // what the next layer chooses by takes it
  return absl::OkStatus();
}

absl::Status StepRun::FeedForward(int layer, int64_t rows) {
  const LayerWeights& weights = own_weights().layers[layer];
  if (model().config.layers[layer].experts) {
    ANNULUS_ASSIGN_OR_RETURN(const ConstMatrixView block, BlockInput(weights.mlp_norm, 0, rows));
    return Experts(layer, block);
  }
  // The values in between are several times as wide as the rest.
  for (int64_t first = 0; first < rows; first += wide_rows()) {
    WillRead({&weights.mlp.gate, &weights.mlp.up});
    ANNULUS_RETURN_IF_ERROR(Mlp(weights, first, std::min(wide_rows(), rows - first)));
  }
  if (layer + 1 < stretch_.end_layer) {
    const LayerWeights& next = own_weights().layers[layer + 1];
    WillRead({&next.key, &next.value, &next.query});
  }
  return absl::OkStatus();
}

absl::Status StepRun::Mlp(const LayerWeights& weights, int64_t first, int64_t rows) {
  ANNULUS_ASSIGN_OR_RETURN(const ConstMatrixView block, BlockInput(weights.mlp_norm, first, rows));
  ANNULUS_ASSIGN_OR_RETURN(const ConstMatrixView gated, Gated(weights.mlp, block));
  return AddToResidual(weights.mlp.down, gated, first, weights.mlp_post_norm);
}

// activation(gate(input), up(input)), in the gate buffer.
absl::StatusOr<ConstMatrixView> StepRun::Gated(const GatedWeights& weights, ConstMatrixView input) {
  const int64_t columns = weights.gate.weight.out_features;
  const MatrixView gate{buffers_.gate.data, input.rows, columns, columns};
  const MatrixView up{buffers_.up.data, input.rows, columns, columns};
  ANNULUS_RETURN_IF_ERROR(
      Linears(ops(), stream(),
              std::array{Product(weights.gate, input, gate), Product(weights.up, input, up)}));
  WillRead({&weights.down});
  ANNULUS_RETURN_IF_ERROR(Activate(gate, up));
  return ConstMatrixView(gate);
}

// gate = activation(gate, up).
absl::Status StepRun::Activate(MatrixView gate, ConstMatrixView up) {
  const ModelConfig& config = model().config;
  return ops().gated_mul(stream(), {gate, up, gate, config.activation, config.activation_alpha,
                                    config.activation_limit});
}

// Bytes from the first layer's part of a page to that of `layer`.
size_t StepRun::PageOffset(int layer) const {
  return state_.parts.pool->geometry().layer_stride() *
         static_cast<size_t>(model().index_in_group[layer]);
}

absl::Status StepRun::Append(int layer) {
  GroupStep& group = groups_[model().group_of_layer[layer]];
  const size_t offset = PageOffset(layer);
  for (const AppendRun& run : group.appends) {
    for (int64_t row = run.first; row < run.first + run.count; ++row) {
      group.layer_page[row] = group.append_page[row] + offset;
    }
    ANNULUS_RETURN_IF_ERROR(
        ops().kv_append(stream(), {model().page_shape, buffers_.key.row_range(run.first, run.count),
                                   buffers_.value.row_range(run.first, run.count),
                                   std::span(group.layer_page).subspan(run.first, run.count),
                                   std::span(group.append_slot).subspan(run.first, run.count)}));
  }
  return absl::OkStatus();
}

RingLayer StepRun::MakeRingLayer(int layer, int64_t rows) {
  const int group = model().group_of_layer[layer];
  const size_t items = layer + 1 == model().layers() ? active_items_ : ring_items_.size();
  RingLayer ring;
  ring.tag = (plan_.step * static_cast<uint64_t>(model().layers()) + layer) << 16;
  ring.window = model().groups[group].window;
  ring.items = std::span(ring_items_).first(items);
  ring.shards = std::span(groups_[group].shards).first(items);
  ring.query = buffers_.query.row_range(0, rows);
  ring.key = buffers_.key;
  ring.value = buffers_.value;
  ring.page_data = [this](int32_t page) { return state_.parts.pool->LayerPage(page, 0); };
  ring.page_offset = PageOffset(layer);
  ring.state = buffers_.state;
  ring.served = buffers_.served;
  ring.kept = buffers_.kept;
  ring.slots = state_.parts.slots;
  return ring;
}

RingPlan& StepRun::PlanOf(int layer) {
  const bool fewer = layer + 1 == model().layers() && active_items_ < ring_items_.size();
  return fewer ? last_plan_ : groups_[model().group_of_layer[layer]].plan;
}

// Before the first layer, so that no layer does it. Lists that are settled layer by layer are laid
// out in each: see Attend.
void StepRun::LayOutAttention() {
  const auto rows = static_cast<int64_t>(row_position_.size());
  const int last = model().layers() - 1;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int layer = model().groups[g].layers.front();
    if (!groups_[g].choosing.empty()) continue;
    if (layer == last && active_items_ < ring_items_.size()) continue;
    state_.ring.LayOut(MakeRingLayer(layer, layer == last ? active_rows_ : rows), PlanOf(layer));
  }
  const GroupStep& group = groups_[model().group_of_layer[last]];
  if (active_items_ == ring_items_.size() || !group.choosing.empty()) return;
  state_.ring.LayOut(MakeRingLayer(last, active_rows_), last_plan_);
}

absl::Status StepRun::Attend(int layer, int64_t rows) {
  TakeUpLayer(layer);
  const RingLayer ring = MakeRingLayer(layer, rows);
  if (state_.parts.observer != nullptr) ANNULUS_RETURN_IF_ERROR(LookOn(layer, ring));
  ANNULUS_RETURN_IF_ERROR(Choose(layer, rows, ring));
  ANNULUS_RETURN_IF_ERROR(state_.ring.Run(ring, PlanOf(layer)));
  const DeviceVector& sinks = own_weights().layers[layer].sinks;
  if (sinks.empty() || rows == 0) return absl::OkStatus();
  AttentionState own = buffers_.state;
  own.rows = rows;
  return ops().merge_sink(stream(), {own, sinks.data()});
}

}  // namespace annulus
