#ifndef ANNULUS_ENGINE_ROOM_KEPT_H_
#define ANNULUS_ENGINE_ROOM_KEPT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/memory/page_book.h"
#include "engine/memory/prefix_index.h"
#include "engine/scheduler/placement.h"

namespace annulus {

// The pages that a new request would hold, by rank.
// `hit`: null: nothing is cached.
std::vector<int32_t> PagesHeld(const RingChoice& choice, const PrefixIndex::Hit* hit,
                               const PlanLimits& limits);

// While room is gathered for a large request, others begin only where it fits beside them once all
// that ran before has ended. This counts who began since. Of one thread, the coordinator's.
class RoomKept {
 public:
  // Whether `large`, which needs `demand`, would then find room beside another request that holds
  // the pages `held`.
  bool LeavesRoom(PageOwner large, const PageDemand& demand, const std::vector<int32_t>& held,
                  const PageBook& book, const PlanLimits& limits);
  // That other request began.
  void Began(PageOwner owner, std::vector<int32_t> held) { newer_[owner] = std::move(held); }
  // It has ended.
  void Forget(PageOwner owner) { newer_.erase(owner); }

 private:
  std::optional<PageOwner> large_;
  std::map<PageOwner, std::vector<int32_t>> newer_;  // [rank]
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_ROOM_KEPT_H_
