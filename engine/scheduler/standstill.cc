#include "engine/scheduler/standstill.h"

namespace annulus {

bool Standstill::StandsStill(SequenceId id, int64_t reached, uint64_t step, Time now) {
  const auto [found, is_new] = seen_.try_emplace(id, Seen{reached, step, now});
  Seen& seen = found->second;
  if (seen.reached != reached) seen = {reached, step, now};
  return step - seen.step >= kSteps && now - seen.time >= kTime;
}

}  // namespace annulus
