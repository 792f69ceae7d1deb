#ifndef ANNULUS_ENGINE_SCHEDULER_STANDSTILL_H_
#define ANNULUS_ENGINE_SCHEDULER_STANDSTILL_H_

#include <chrono>
#include <cstdint>
#include <map>

#include "engine/state/step_plan.h"

namespace annulus {

// Says which prompts have stood still: those for whose pages others should wait no longer. A long
// step is no standstill, since all that is in it goes on; so one is left out of many steps, and
// some time has passed as well. Of one thread.
class Standstill {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr uint64_t kSteps = 16;
  static constexpr std::chrono::seconds kTime{2};

  // How far a prompt is after so many steps of the engine; returns whether it stands still.
  bool Look(SequenceId id, int32_t computed, uint64_t step, Time now);
  void Forget(SequenceId id) { seen_.erase(id); }

 private:
  struct Seen {
    int32_t computed = 0;
    uint64_t step = 0;
    Time time;
  };
  std::map<SequenceId, Seen> seen_;  // when each was first seen where it is
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_STANDSTILL_H_
