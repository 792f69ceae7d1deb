#ifndef ANNULUS_ENGINE_SCHEDULER_RUNNING_SLOTS_H_
#define ANNULUS_ENGINE_SCHEDULER_RUNNING_SLOTS_H_

#include <string>
#include <unordered_map>

#include "engine/scheduler/order.h"

namespace annulus {

// The slots for running requests. The last eighth of them, rounded down, is reserved: no owner
// may have more than seven eighths. The owner of a request is its tenant, or its client if it has
// no tenant; requests with neither are not limited. All methods take constant time. Not
// thread-safe.
class RunningSlots {
 public:
  // `most`: number of slots.
  explicit RunningSlots(int most) : most_(most) {}

  // Records that a request of this share runs.
  void Take(const ShareName& share);
  // Whether one more request of this share may run.
  bool Has(const ShareName& share) const;

 private:
  const int most_;
  int taken_ = 0;
  std::unordered_map<std::string, int> by_owner_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_RUNNING_SLOTS_H_
