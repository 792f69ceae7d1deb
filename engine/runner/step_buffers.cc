// What a step takes of the arenas. CountStepBytes plans for exactly what TakeBuffers,
// TakeGated and Head take.
#include <algorithm>

#include "engine/runner/rank_executor.h"
#include "engine/runner/step_run.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Columns of the gate and up buffers: those of the widest gated block.
int64_t GatedColumns(const ModelConfig& config) {
  int64_t columns = 0;
  for (const LayerConfig& layer : config.layers) {
    const int32_t size =
        layer.experts ? config.experts.intermediate_size : config.intermediate_size;
    columns = std::max<int64_t>(columns, size);
  }
  return columns;
}

// Choices of `rows` rows, as far as they are few.
int64_t FewChoices(const ModelConfig& config, int64_t rows) {
  return std::min(rows, kMostChoosingRows) * config.experts.chosen;
}

// Rows of the gate and up buffers: an expert may be chosen by every row, and the choices of few
// rows are multiplied at once.
int64_t GatedRows(const ModelConfig& config, int64_t rows, int64_t wide_rows) {
  return config.experts.count > 0 ? std::max(rows, FewChoices(config, rows))
                                  : std::min(rows, wide_rows);
}

size_t ExpertsBytes(const ModelConfig& config, int64_t rows, int64_t wide_rows) {
  if (config.experts.count == 0) return 0;
  const auto few = static_cast<size_t>(FewChoices(config, rows));
  const auto floats = [](int64_t count) {
    return StepArena::BytesFor<float>(static_cast<size_t>(count));
  };
  return floats(rows * config.hidden_size) +
         floats(GatedRows(config, rows, wide_rows) * config.hidden_size) +
         floats(rows * config.experts.count) + StepArena::BytesFor<int32_t>(few) +
         StepArena::BytesFor<float>(few);
}

size_t ChoicesBytes(const ModelConfig& config, int64_t rows) {
  if (config.experts.count == 0) return 0;
  const auto choices = static_cast<size_t>(rows * config.experts.chosen);
  return 2 * StepArena::BytesFor<float>(choices) + 2 * StepArena::BytesFor<int32_t>(choices) +
         StepArena::BytesFor<int32_t>(static_cast<size_t>(config.experts.count) + 1);
}

}  // namespace

StepBytes CountStepBytes(const RankModel& model, int rows, int ranks,
                         const BackendCapabilities& device) {
  const ModelConfig& config = model.config;
  const auto floats = [](int64_t count) {
    return StepArena::BytesFor<float>(static_cast<size_t>(count));
  };
  const auto state = [&](int64_t n) {
    return floats(n * model.query_columns()) + floats(n * config.heads);
  };
  const int64_t r = rows;
  const StateCounts states = MostStates(ranks, ShardsOf(*model.ops, ranks));
  size_t angles = 0;
  for (const RopeConfig& rope : config.ropes) angles += 2 * floats(r * rope.pairs);
  const size_t logits = floats(kLogitsRows * config.vocabulary);
  // Of a layer: first scores along antidiagonals, for which one block of keys is enough and more is
  // better, then gate and up.
  const size_t of_layer =
      std::max(2 * floats(GatedRows(config, r, device.wide_rows) * GatedColumns(config)),
               floats(r * config.heads));
  StepBytes bytes;
  bytes.device = 2 * floats(r * config.hidden_size) + floats(r * model.query_columns()) +
                 2 * floats(r * model.kv_columns()) + of_layer + angles +
                 ExpertsBytes(config, r, device.wide_rows) + state(r) +
                 state(r * (ranks - 1) * states.states) + state(r * (states.kept_slots - 1)) +
                 logits + floats(kLogitsRows * config.hidden_size);
  bytes.host = ChoicesBytes(config, r) + StepArena::BytesFor<int32_t>(kLogitsRows) +
               StepArena::BytesFor<Candidate>(static_cast<size_t>(config.vocabulary));
  if (device.host_accessible) return {bytes.device + bytes.host, 0};
  bytes.host += logits;
  return bytes;
}

size_t CountSuspendedBytes(const RankModel& model, int rows) {
  if (rows == 0) return 0;
  return StepArena::BytesFor<float>(static_cast<size_t>(rows + 1) *
                                    static_cast<size_t>(model.config.hidden_size));
}

absl::StatusOr<MatrixView> StepRun::TakeMatrix(int64_t rows, int64_t cols) {
  ANNULUS_ASSIGN_OR_RETURN(const std::span<float> data,
                           state_.parts.arena->Take<float>(static_cast<size_t>(rows * cols)));
  return MatrixView{data.data(), rows, cols, cols};
}

absl::StatusOr<AttentionState> StepRun::TakeState(int64_t rows) {
  ANNULUS_ASSIGN_OR_RETURN(const MatrixView o, TakeMatrix(rows, model().query_columns()));
  ANNULUS_ASSIGN_OR_RETURN(const MatrixView lse, TakeMatrix(rows, model().config.heads));
  return AttentionState{o.data, lse.data, rows, model().config.heads, model().config.head_dim};
}

// What a suspended chunk's layers pass on stays where it is from the first stretch to the last.
absl::StatusOr<MatrixView> StepRun::TakeResidual(int64_t rows) {
  const int64_t hidden = model().config.hidden_size;
  if (!plan_.stretch.has_value()) return TakeMatrix(rows, hidden);
  if (stretch_.first_layer > 0) return state_.suspended->residual;
  StepArena* const arena = state_.parts.suspended;
  if (arena == nullptr) {
    return absl::InvalidArgumentError(
        "the plan suspends a chunk between layers, and this rank has no memory for that");
  }
  arena->Reset();
  ANNULUS_ASSIGN_OR_RETURN(const std::span<float> data,
                           arena->Take<float>(static_cast<size_t>(rows * hidden)));
  return MatrixView{data.data(), rows, hidden, hidden};
}

absl::Status StepRun::TakeBuffers(const StateRows& states) {
  const ModelConfig& config = model().config;
  const int64_t rows = static_cast<int64_t>(row_position_.size());
  Buffers& b = buffers_;
  ANNULUS_ASSIGN_OR_RETURN(b.residual, TakeResidual(rows));
  ANNULUS_ASSIGN_OR_RETURN(b.normed, TakeMatrix(rows, config.hidden_size));
  ANNULUS_ASSIGN_OR_RETURN(b.query, TakeMatrix(rows, model().query_columns()));
  ANNULUS_ASSIGN_OR_RETURN(b.key, TakeMatrix(rows, model().kv_columns()));
  ANNULUS_ASSIGN_OR_RETURN(b.value, TakeMatrix(rows, model().kv_columns()));
  b.angles.resize(config.ropes.size());
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    ANNULUS_ASSIGN_OR_RETURN(b.angles[i].cosine, TakeMatrix(rows, config.ropes[i].pairs));
    ANNULUS_ASSIGN_OR_RETURN(b.angles[i].sine, TakeMatrix(rows, config.ropes[i].pairs));
  }
  ANNULUS_ASSIGN_OR_RETURN(b.state, TakeState(rows));
  ANNULUS_ASSIGN_OR_RETURN(b.served, TakeState(states.served));
  ANNULUS_ASSIGN_OR_RETURN(b.kept, TakeState(states.kept));
  return config.experts.count == 0 ? absl::OkStatus() : TakeExpertBuffers(rows);
}

absl::Status StepRun::TakeGated() {
  const ModelConfig& config = model().config;
  const int64_t rows = GatedRows(config, static_cast<int64_t>(row_position_.size()), wide_rows());
  ANNULUS_ASSIGN_OR_RETURN(buffers_.gate, TakeMatrix(rows, GatedColumns(config)));
  ANNULUS_ASSIGN_OR_RETURN(buffers_.up, TakeMatrix(rows, GatedColumns(config)));
  return absl::OkStatus();
}

absl::Status StepRun::TakeExpertBuffers(int64_t rows) {
  const ExpertsConfig& experts = model().config.experts;
  const auto choices = static_cast<size_t>(rows * experts.chosen);
  const auto few = static_cast<size_t>(FewChoices(model().config, rows));
  StepArena& arena = *state_.parts.host_arena;
  StepArena& own = *state_.parts.arena;
  const int64_t hidden = model().config.hidden_size;
  ExpertBuffers& b = experts_;
  ANNULUS_ASSIGN_OR_RETURN(b.input, TakeMatrix(rows, hidden));
  ANNULUS_ASSIGN_OR_RETURN(b.output,
                           TakeMatrix(GatedRows(model().config, rows, wide_rows()), hidden));
  ANNULUS_ASSIGN_OR_RETURN(b.logits, TakeMatrix(rows, experts.count));
  ANNULUS_ASSIGN_OR_RETURN(b.few_chosen, own.Take<int32_t>(few));
  ANNULUS_ASSIGN_OR_RETURN(b.few_weights, own.Take<float>(few));
  ANNULUS_ASSIGN_OR_RETURN(b.weights, arena.Take<float>(choices));
  ANNULUS_ASSIGN_OR_RETURN(b.sorted_weights, arena.Take<float>(choices));
  ANNULUS_ASSIGN_OR_RETURN(b.chosen, arena.Take<int32_t>(choices));
  ANNULUS_ASSIGN_OR_RETURN(b.sorted_rows, arena.Take<int32_t>(choices));
  ANNULUS_ASSIGN_OR_RETURN(b.ends, arena.Take<int32_t>(static_cast<size_t>(experts.count) + 1));
  return absl::OkStatus();
}

}  // namespace annulus
