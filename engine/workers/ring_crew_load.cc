// What RingCrew tells of its workers.

#include "engine/workers/ring_crew.h"

namespace annulus {

RingLoad RingCrew::Load() const {
  std::lock_guard lock(mutex_);
  const SteadyTime now = options_.clock->Now();
  RingLoad load;
  load.epoch = membership_.epoch();
  for (const Membership::Seat& seat : membership_.seats()) {
    WorkerLoad& worker = load.workers.emplace_back();
    worker.first_rank = seat.first_rank;
    worker.ranks = seat.ranks;
    const Member* const host = Find(seat.host);
    worker.lost = host == nullptr;
    if (host == nullptr) continue;
    worker.name = host->hello.name();
    worker.peer = host->link->peer();
    worker.silent_seconds = SecondsBetween(membership_.heard(seat.host), now);
  }
  return load;
}

}  // namespace annulus
