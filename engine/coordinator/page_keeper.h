#ifndef ANNULUS_ENGINE_COORDINATOR_PAGE_KEEPER_H_
#define ANNULUS_ENGINE_COORDINATOR_PAGE_KEEPER_H_

#include <cstdint>
#include <span>

#include "engine/base/steady_time.h"

namespace annulus {

// Keeps pages beyond the requests that wrote them, as owner of pins (PageBook::OpenPin): see
// DocumentKeeper. The ledger knows all keepers (Ledger::AddKeeper), and the loop tends each. Used
// by the coordinator's thread alone.
class PageKeeper {
 public:
  virtual ~PageKeeper() = default;
  // Does what is due. Called before each step, so it must not wait for anything. Must not throw:
  // what there is no memory for is done by the next call.
  virtual void Tend() = 0;
  // When Tend must be called even if nothing wakes the loop; SteadyTime::max(): never.
  virtual SteadyTime NextDue() const = 0;
  // Ends the pins that hold pages of these ranks, whose contents are lost.
  virtual void ForgetRanks(std::span<const int32_t> ranks) = 0;
  // Ends all pins.
  virtual void Clear() = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_PAGE_KEEPER_H_
