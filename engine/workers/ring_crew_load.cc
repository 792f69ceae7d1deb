// What RingCrew tells of its workers.

#include "engine/workers/ring_crew.h"

namespace annulus {

RingLoad RingCrew::Load() const {
  std::lock_guard lock(mutex_);
  const SteadyTime now = options_.clock->Now();
  RingLoad load;
  load.epoch = epoch_;
  for (const Member* worker : workers_) {
    load.workers.push_back({.name = worker->hello.name(),
                            .peer = worker->link->peer(),
                            .first_rank = worker->first_rank,
                            .ranks = worker->hello.ranks(),
                            .lost = worker->lost,
                            .silent_seconds = SecondsBetween(worker->heard, now)});
  }
  return load;
}

}  // namespace annulus
