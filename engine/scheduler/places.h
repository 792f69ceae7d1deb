#ifndef ANNULUS_ENGINE_SCHEDULER_PLACES_H_
#define ANNULUS_ENGINE_SCHEDULER_PLACES_H_

#include <string>
#include <unordered_map>

#include "engine/scheduler/order.h"

namespace annulus {

// The places among running requests. No single owner can take them all: the last eighth is reserved
// for others. The owner is the tenant, or the client for callers without a tenant. All methods take
// constant time.
class Places {
 public:
  explicit Places(int most) : most_(most) {}

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

#endif  // ANNULUS_ENGINE_SCHEDULER_PLACES_H_
