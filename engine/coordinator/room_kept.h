#ifndef ANNULUS_ENGINE_COORDINATOR_ROOM_KEPT_H_
#define ANNULUS_ENGINE_COORDINATOR_ROOM_KEPT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/memory/page_book.h"
#include "engine/memory/prefix_index.h"
#include "engine/scheduler/placement.h"

namespace annulus {

// The number of pages that a new request would hold on each rank. `hit`: null if nothing is cached.
std::vector<int32_t> PagesHeld(const RingChoice& choice, const PrefixIndex::Hit* hit,
                               const PlanLimits& limits);

// The same once it has grown to all its tokens.
std::vector<int32_t> MostPagesHeld(const RingChoice& choice, const PrefixIndex::Hit* hit,
                                   const PlanLimits& limits);

// While room is gathered for a large request, another request begins only if the large one will fit
// beside it once all earlier ones have ended. This keeps the requests that began since. Used by the
// coordinator's thread alone.
class RoomKept {
 public:
  // Whether `large`, which needs `demand`, will still fit if another request begins that holds the
  // pages `held`.
  bool LeavesRoom(PageOwner large, const PageDemand& demand, const std::vector<int32_t>& held,
                  const PageBook& book, const PlanLimits& limits);
  // Notes that such a request began.
  void Began(PageOwner owner, std::vector<int32_t> held) { newer_[owner] = std::move(held); }
  // Notes that it has ended.
  void Forget(PageOwner owner) { newer_.erase(owner); }

 private:
  std::optional<PageOwner> large_;
  std::map<PageOwner, std::vector<int32_t>> newer_;  // [rank]
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ROOM_KEPT_H_
