#ifndef ANNULUS_ENGINE_SCHEDULER_PLACES_H_
#define ANNULUS_ENGINE_SCHEDULER_PLACES_H_

#include <string>
#include <unordered_map>

#include "engine/scheduler/order.h"

namespace annulus {

// The places among the requests that run. One owner alone does not take every place: the last
// eighth is kept for others. The owner is the tenant; of callers that are nobody's in particular,
// the client. Each look takes the same time however many run or wait.
class Places {
 public:
  explicit Places(int most) : most_(most) {}

  // One of this share runs.
  void Take(const ShareName& share);
  // Whether one more of it may.
  bool Has(const ShareName& share) const;

 private:
  const int most_;
  int taken_ = 0;
  std::unordered_map<std::string, int> by_owner_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_PLACES_H_
