#include "engine/runner/step/step_buffers.h"

#include <algorithm>
#include <utility>

#include "engine/ring/subtrees.h"
#include "kernels/ops/experts.h"

namespace annulus {
namespace {

using Phase = StepBuffers::Phase;

enum class Memory : uint8_t { kDevice, kHost };

// Choices of the own rows, as far as these are few.
int64_t FewChoices(const StepSizes& sizes) {
  return std::min(sizes.rows, kMostChoosingRows) * sizes.model.config.experts.routing.chosen;
}

// Rows that `array` must have for an operation that computes `rows`.
int64_t RowsOf(LayerRows rows, LayerArray array, const StepSizes& sizes) {
  // Slices follow each other at row 0 of an array inside the block, elsewhere at their own rows.
  if (rows == LayerRows::kSlices && InsideBlock(array)) {
    return std::min(sizes.rows, sizes.wide_rows);
  }
  // Every row may choose the same expert, and the choices of few rows are multiplied at once.
  if (rows == LayerRows::kChoices) return std::max(sizes.rows, FewChoices(sizes));
  return sizes.rows;
}

// How many values each array must hold, so that it serves every operation of every layer.
std::array<int64_t, kLayerArrays> CountValues(const StepSizes& sizes) {
  std::array<int64_t, kLayerArrays> rows{};
  std::array<int64_t, kLayerArrays> columns{};
  for (const LayerGraph& layer : sizes.model.graph) {
    const auto uses = [&](LayerArray array, int64_t count) {
      if (array == LayerArray::kActiveStream) array = LayerArray::kStreams;
      const auto i = static_cast<size_t>(array);
      rows[i] = std::max(rows[i], count);
      columns[i] = std::max(columns[i], layer.columns[i]);
    };
    const auto passes = [&](LayerArray input, LayerArray output, LayerRows kind) {
      // The choices of a row share its input.
      uses(input, std::min(RowsOf(kind, input, sizes), sizes.rows));
      uses(output, RowsOf(kind, output, sizes));
    };
    ForEachOperation(layer, [&](const Operation& operation) {
      if (operation.kind != Operation::Kind::kProducts) {
        passes(operation.input, operation.output, operation.rows);
      }
      for (const Product& product : operation.products) {
        passes(operation.input, product.output, product.rows);
      }
    });
  }
  std::array<int64_t, kLayerArrays> values{};
  for (size_t i = 0; i < kLayerArrays; ++i) values[i] = rows[i] * columns[i];
  return values;
}

// The most of any layer.
int64_t MostHeads(const RankModel& model) {
  int64_t most = 0;
  for (const LayerConfig& layer : model.config.layers) {
    most = std::max<int64_t>(most, layer.attention.heads);
  }
  return most;
}

int64_t MostAttendedColumns(const RankModel& model) {
  int64_t most = 0;
  for (const LayerConfig& layer : model.config.layers) {
    most = std::max(most, layer.attention.attended_columns());
  }
  return most;
}

template <class Visit>
void ForEachArray(bool inside_block, StepBuffers& b, Visit& visit) {
  for (size_t i = 0; i < kLayerArrays; ++i) {
    const auto array = static_cast<LayerArray>(i);
    if (InsideBlock(array) != inside_block) continue;
    if (array == PassedOn(b.sizes.model.config) && b.sizes.suspends) continue;
    visit(Memory::kDevice, b.values[i], b.arrays[i]);
  }
}

template <class Visit>
void ForEachOfExperts(const StepSizes& sizes, StepBuffers::Experts& b, Visit& visit) {
  const ExpertsConfig& experts = sizes.model.config.experts;
  if (experts.count == 0) return;
  const int64_t choices = sizes.rows * experts.routing.chosen;
  visit(Memory::kDevice, FewChoices(sizes), b.few_chosen);
  visit(Memory::kDevice, FewChoices(sizes), b.few_weights);
  if (experts.shared_gate) {
    const int64_t slice = std::min(sizes.rows, sizes.wide_rows);
    visit(Memory::kDevice, slice, b.gate_chosen);
    visit(Memory::kDevice, slice, b.gates);
  }
  visit(Memory::kHost, choices, b.weights);
  visit(Memory::kHost, choices, b.sorted_weights);
  visit(Memory::kHost, choices, b.chosen);
  visit(Memory::kHost, choices, b.sorted_rows);
  visit(Memory::kHost, int64_t{experts.count} + 1, b.ends);
}

template <class Visit>
void ForEachOfInputs(const StepSizes& sizes, StepBuffers::Inputs& b, Visit& visit) {
  const ModelConfig& config = sizes.model.config;
  if (config.layer_input_size == 0) return;
  const int64_t slice = std::min(sizes.rows, sizes.wide_rows);
  const int64_t columns = config.layer_input_size * std::ssize(config.layers);
  visit(Memory::kDevice, slice * config.hidden_size, b.embedded);
  visit(Memory::kDevice, slice * columns, b.projected);
}

template <class Visit>
void ForEachOfHead(const StepSizes& sizes, StepBuffers::Head& b, Visit& visit) {
  const ModelConfig& config = sizes.model.config;
  const int64_t logits = kLogitsRows * config.vocabulary;
  visit(Memory::kDevice, kLogitsRows * config.hidden_size, b.normed);
  if (config.streams.used()) {
    visit(Memory::kDevice, kLogitsRows * config.streams.count * config.hidden_size, b.streams);
    visit(Memory::kDevice, kLogitsRows * config.hidden_size, b.projected);
  }
  visit(Memory::kDevice, logits, b.logits);
  visit(Memory::kHost, config.vocabulary, b.workspace);
  visit(Memory::kHost, kLogitsRows, b.tokens);
  if (!sizes.in_place) visit(Memory::kHost, logits, b.seen);
}

// The list: calls visit(memory, count, span) for each buffer of a phase.
template <class Visit>
void ForEachBuffer(Phase phase, StepBuffers& b, Visit& visit) {
  const StepSizes& sizes = b.sizes;
  const RankModel& model = sizes.model;
  if (phase == Phase::kHead) return ForEachOfHead(sizes, b.head, visit);
  if (phase == Phase::kInputs) return ForEachOfInputs(sizes, b.inputs, visit);
  ForEachArray(phase == Phase::kBlock, b, visit);
  if (phase == Phase::kBlock) return;
  visit(Memory::kDevice, sizes.rows * b.state_heads, b.lse);
  for (const auto& [state, rows] :
       {std::pair(&b.served, sizes.states.served), std::pair(&b.kept, sizes.states.kept)}) {
    visit(Memory::kDevice, rows * b.state_columns, state->o);
    visit(Memory::kDevice, rows * b.state_heads, state->lse);
  }
  b.angles.resize(model.config.ropes.size());
  for (size_t rope = 0; rope < b.angles.size(); ++rope) {
    const int64_t count = sizes.rows * model.config.ropes[rope].pairs;
    visit(Memory::kDevice, count, b.angles[rope].cosine);
    visit(Memory::kDevice, count, b.angles[rope].sine);
  }
  ForEachOfExperts(sizes, b.experts, visit);
}

// Bytes of a phase's buffers.
StepBytes CountPhase(Phase phase, const StepSizes& sizes) {
  StepBytes bytes;
  const auto count = [&]<class T>(Memory memory, int64_t values, std::span<T>&) {
    (memory == Memory::kHost ? bytes.host : bytes.device) +=
        StepArena::BytesFor<T>(static_cast<size_t>(values));
  };
  StepBuffers unused(sizes);
  ForEachBuffer(phase, unused, count);
  return bytes;
}

}  // namespace

StepBuffers::StepBuffers(const StepSizes& step)
    : sizes(step),
      values(CountValues(step)),
      state_heads(MostHeads(step.model)),
      state_columns(MostAttendedColumns(step.model)) {}

absl::Status StepBuffers::Take(Phase phase, StepArena& device, StepArena& host) {
  absl::Status status;
  const auto take = [&]<class T>(Memory memory, int64_t values, std::span<T>& into) {
    StepArena& arena = memory == Memory::kHost ? host : device;
    absl::StatusOr<std::span<T>> taken = arena.Take<T>(static_cast<size_t>(values));
    if (taken.ok()) {
      into = *taken;
    } else {
      status.Update(taken.status());
    }
  };
  ForEachBuffer(phase, *this, take);
  return status;
}

StepBytes CountStepBytes(const RankModel& model, int rows, int ranks,
                         const BackendCapabilities& device) {
  const StateCounts states = MostStates(ranks, ShardsOf(*model.ops, ranks));
  const int64_t r = rows;
  const StepSizes sizes{.model = model,
                        .rows = r,
                        .states = {r * (ranks - 1) * states.states, r * (states.kept_slots - 1)},
                        .wide_rows = device.wide_rows,
                        .in_place = device.host_accessible};
  const StepBytes step = CountPhase(Phase::kStep, sizes);
  const StepBytes block = CountPhase(Phase::kBlock, sizes);
  const StepBytes inputs = CountPhase(Phase::kInputs, sizes);
  const StepBytes head = CountPhase(Phase::kHead, sizes);
  // What a block takes is used before by scores along antidiagonals (see Antidiagonals), for which
  // one block of keys is enough and more is better.
  const size_t scores =
      StepArena::BytesFor<float>(static_cast<size_t>(r) * static_cast<size_t>(MostHeads(model)));
  StepBytes bytes{step.device + head.device + std::max({block.device, scores, inputs.device}),
                  step.host + head.host};
  if (device.host_accessible) return {bytes.device + bytes.host, 0};
  return bytes;
}

size_t CountSuspendedBytes(const RankModel& model, int rows) {
  if (rows == 0) return 0;
  const ModelConfig& config = model.config;
  const int64_t columns = config.hidden_size * std::max(1, config.streams.count);
  return StepArena::BytesFor<float>(static_cast<size_t>((rows + 1) * columns));
}

}  // namespace annulus
