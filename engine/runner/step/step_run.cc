#include "engine/runner/step/step_run.h"

#include <utility>

#include "engine/runner/step/step_head.h"
#include "engine/runner/step/step_layers.h"
#include "kernels/base/status_macros.h"

namespace annulus {

StepRun::StepRun(RankState& state, const StepPlan& plan)
    : state_(state),
      plan_(plan),
      stretch_(plan.stretch.value_or(Stretch{0, state.model().layers(), true})),
      rows_(plan, state),
      attention_(state, plan, rows_),
      buffers_({.model = state.model(),
                .rows = rows_.count(),
                .states = attention_.ReserveStates(),
                .wide_rows = state.parts.backend->capabilities().wide_rows,
                .in_place = state.parts.host_arena == state.parts.arena,
                .suspends = plan.stretch.has_value()}) {}

absl::Status StepRun::Run(RankResult& result) {
  ANNULUS_RETURN_IF_ERROR(TakeBuffers());
  attention_.LayOut(buffers_);
  ANNULUS_RETURN_IF_ERROR(BeginGraph());
  StepLayers layers(state_, plan_, rows_, buffers_, attention_);
  if (stretch_.first_layer == 0) {
    ANNULUS_RETURN_IF_ERROR(layers.Embed());
  } else {
    attention_.reports() = std::move(state_.suspended->attention);
    attention_.evidence() = std::move(state_.suspended->evidence);
  }
  ANNULUS_RETURN_IF_ERROR(layers.FillInputs());
  ANNULUS_RETURN_IF_ERROR(layers.FillAngles());
  ANNULUS_RETURN_IF_ERROR(layers.Run(stretch_.first_layer, stretch_.end_layer));
  if (stretch_.ends_chunk) {
    result.attention = std::move(attention_.reports());
    StepHead head(state_, plan_, rows_, buffers_, attention_.evidence(),
                  [this] { return LaunchGraph(); });
    ANNULUS_RETURN_IF_ERROR(head.Run(result));
    if (plan_.stretch.has_value()) state_.suspended.reset();
  } else {
    Suspend();
  }
  ANNULUS_RETURN_IF_ERROR(LaunchGraph());
  // Pages and arenas may be given to others once the step has ended.
  ANNULUS_RETURN_IF_ERROR(state_.stream().Synchronize());
  return state_.ring.CountSeconds();
}

absl::Status StepRun::TakeBuffers() {
  if (plan_.stretch.has_value()) ANNULUS_RETURN_IF_ERROR(TakePassedOn());
  return buffers_.Take(StepBuffers::Phase::kStep, *state_.parts.arena, *state_.parts.host_arena);
}

// What a suspended chunk's layers pass on stays where it is from the first stretch to the last.
absl::Status StepRun::TakePassedOn() {
  const LayerArray passed_on = PassedOn(state_.model().config);
  std::span<float>& values = buffers_.of(passed_on);
  if (stretch_.first_layer > 0) {
    values = state_.suspended->passed_on;
    return absl::OkStatus();
  }
  StepArena* const arena = state_.parts.suspended;
  if (arena == nullptr) {
    return absl::InvalidArgumentError(
        "the plan suspends a chunk between layers, and this rank has no memory for that");
  }
  arena->Reset();
  ANNULUS_ASSIGN_OR_RETURN(
      values,
      arena->Take<float>(static_cast<size_t>(buffers_.values[static_cast<size_t>(passed_on)])));
  return absl::OkStatus();
}

void StepRun::Suspend() {
  if (!state_.suspended.has_value()) state_.suspended.emplace().chunk.items = plan_.items;
  state_.suspended->chunk.layers = stretch_.end_layer;
  state_.suspended->passed_on = buffers_.of(PassedOn(state_.model().config));
  state_.suspended->attention = std::move(attention_.reports());
  state_.suspended->evidence = std::move(attention_.evidence());
}

// Steps that decode are short and much like each other. With prompt rows among them, the launch
// cost is negligible.
absl::Status StepRun::BeginGraph() {
  if (!state_.parts.graphs || plan_.items.empty() || plan_.stretch.has_value())
    return absl::OkStatus();
  for (const PlanItem& item : plan_.items) {
    if (!item.sampled) return absl::OkStatus();
  }
  ANNULUS_ASSIGN_OR_RETURN(graph_, state_.stream().BeginGraph());
  return absl::OkStatus();
}

// Called where the host first needs what the step computes, and at its end.
absl::Status StepRun::LaunchGraph() {
  const std::unique_ptr<StepGraph> graph = std::move(graph_);
  return graph == nullptr ? absl::OkStatus() : graph->Launch();
}

}  // namespace annulus
