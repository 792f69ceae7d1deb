#ifndef ANNULUS_ENGINE_RUNNER_STEP_STEP_RUN_H_
#define ANNULUS_ENGINE_RUNNER_STEP_STEP_RUN_H_

#include <memory>

#include "absl/status/status.h"
#include "engine/runner/rank_state.h"
#include "engine/runner/step/step_attention.h"
#include "engine/runner/step/step_buffers.h"
#include "engine/runner/step/step_rows.h"

namespace annulus {

// Runs one plan on one rank, from token ids to sampled tokens, or some of its layers if the plan is
// a stretch of a suspended chunk. Made for one step and then discarded. Its parts: StepAttention,
// StepLayers, StepHead.
class StepRun {
 public:
  // The plan's updates must have been applied to `state`, and its arenas be empty.
  StepRun(RankState& state, const StepPlan& plan);

  absl::Status Run(RankResult& result);

 private:
  absl::Status TakeBuffers();
  absl::Status TakePassedOn();
  absl::Status BeginGraph();
  absl::Status LaunchGraph();
  void Suspend();

  RankState& state_;
  const StepPlan& plan_;
  const Stretch stretch_;  // the layers to run
  const StepRows rows_;
  StepAttention attention_;
  StepBuffers buffers_;
  std::unique_ptr<StepGraph> graph_;  // of a step recorded as a graph; null: none, or launched
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_STEP_STEP_RUN_H_
