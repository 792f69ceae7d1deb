// What RingCrew tells of its workers.

#include <algorithm>
#include <string>
#include <vector>

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

std::vector<std::string> RingCrew::spares() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const MemberId id : membership_.Spares()) names.push_back(Find(id)->hello.name());
  return names;
}

int RingCrew::workers() const {
  std::lock_guard lock(mutex_);
  const auto& seats = membership_.seats();
  return static_cast<int>(std::count_if(
      seats.begin(), seats.end(), [](const Membership::Seat& seat) { return !seat.left_out; }));
}

RankStatistics RingCrew::Statistics(int rank) const {
  std::lock_guard lock(mutex_);
  const Membership::Seat& seat = membership_.SeatOfRank(rank);
  const Member* const worker = Find(seat.host);
  if (worker == nullptr || worker->statistics.empty()) return {};
  return worker->statistics[static_cast<size_t>(rank - seat.first_rank)];
}

}  // namespace annulus
