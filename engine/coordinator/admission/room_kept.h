#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_ROOM_KEPT_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_ROOM_KEPT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/api/request.h"
#include "engine/memory/page_book.h"
#include "engine/memory/prefix_index.h"
#include "engine/scheduler/placement.h"

namespace annulus {

// [rank] The number of pages that a new request holds after admission: those it reserves, summary
// pages, and the cached pages of `hit`. `hit`: null if nothing is cached.
std::vector<int32_t> PagesHeld(const RingChoice& choice, const PrefixIndex::Hit* hit,
                               const PlanLimits& limits);

// The same after it has grown to PageDemand::tokens.
std::vector<int32_t> MostPagesHeld(const RingChoice& choice, const PrefixIndex::Hit* hit,
                                   const PlanLimits& limits);

// Keeps room for a large request. While room is gathered for it (see Admission), another request
// begins only if the large one will still fit once all requests have ended that ran when gathering
// began. This class remembers the requests that began since then. Used by the coordinator's thread
// alone.
class RoomKept {
 public:
  // Whether `large`, which needs `demand`, will still fit if another request begins that comes to
  // hold the pages `held` ([rank], MostPagesHeld). If `large` differs from the last call's, forgets
  // the requests noted so far.
  bool LeavesRoom(RequestId large, const PageDemand& demand, const std::vector<int32_t>& held,
                  const PageBook& book, const PlanLimits& limits);
  // Notes that a request began that comes to hold the pages `held`.
  void Began(RequestId id, std::vector<int32_t> held) { newer_[id] = std::move(held); }
  // Whether it began since room is gathered for the request of the last call, and still runs.
  bool HasBegun(RequestId id) const { return newer_.contains(id); }
  // Notes that it ended or was preempted.
  void Forget(RequestId id) { newer_.erase(id); }

 private:
  std::optional<RequestId> large_;                   // of the last call
  std::map<RequestId, std::vector<int32_t>> newer_;  // [rank]
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_ROOM_KEPT_H_
