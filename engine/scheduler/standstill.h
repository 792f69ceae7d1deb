#ifndef ANNULUS_ENGINE_SCHEDULER_STANDSTILL_H_
#define ANNULUS_ENGINE_SCHEDULER_STANDSTILL_H_

#include <chrono>
#include <cstdint>
#include <map>

#include "engine/state/step_plan.h"

namespace annulus {

// Detects prompts that stand still, so that others stop waiting for their pages. A long step is no
// standstill, since everything in it advances; a prompt stands still if it has not advanced for
// kSteps steps and kTime. Not thread-safe.
class Standstill {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr uint64_t kSteps = 16;
  static constexpr std::chrono::seconds kTime{2};

  // Records how far the prompt has come after `step` steps of the engine: `reached` is any number
  // that changes when the prompt advances. Returns whether it stands still.
  bool StandsStill(SequenceId id, int64_t reached, uint64_t step, Time now);
  void Forget(SequenceId id) { seen_.erase(id); }

 private:
  struct Seen {
    int64_t reached = 0;
    uint64_t step = 0;
    Time time;
  };
  std::map<SequenceId, Seen> seen_;  // when each was first seen at its current position
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_STANDSTILL_H_
