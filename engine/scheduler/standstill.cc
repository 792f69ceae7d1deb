#include "engine/scheduler/standstill.h"

namespace annulus {

bool Standstill::Look(SequenceId id, int32_t computed, uint64_t step, Time now) {
  const auto [found, is_new] = seen_.try_emplace(id, Seen{computed, step, now});
  Seen& seen = found->second;
  if (seen.computed != computed) seen = {computed, step, now};
  return step - seen.step >= kSteps && now - seen.time >= kTime;
}

}  // namespace annulus
