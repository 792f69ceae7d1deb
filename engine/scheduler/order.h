#ifndef ANNULUS_ENGINE_SCHEDULER_ORDER_H_
#define ANNULUS_ENGINE_SCHEDULER_ORDER_H_

#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/state/step_plan.h"

namespace annulus {

// Whose share a request uses: first its tenant's, among that one's clients its client's.
struct ShareName {
  std::string tenant;
  std::string client;

  friend bool operator==(const ShareName&, const ShareName&) = default;
  friend auto operator<=>(const ShareName&, const ShareName&) = default;
};

// A request whose prompt is not computed yet, whether it waits or runs.
struct Contender {
  SequenceId id = 0;
  ShareName share = {};
  int priority = 0;      // RequestSpec::priority
  double elapsed = 0;    // seconds since it was submitted
  double remaining = 0;  // seconds that the rest of its prompt takes if it is alone
  double total = 0;      // .. and all that had to be computed
  double until_deadline = std::numeric_limits<double>::infinity();  // seconds
};

// How pressing a request is, 1 where it loses nothing by waiting a little. The larger of
//  - its stretch: the time to its first token if it goes on now, over what that takes alone (the
//    geometric mean of all of it and of what is left). It grows with time, the faster the shorter
//    the request, so a short one comes soon and a long one comes too, whatever else arrives. What
//    has begun counts a quarter more: equal ones are done one after the other, not all at the end;
//  - the time to its deadline over its slack, what is left of that time once it is done; not where
//    the deadline cannot be met, so that work which is lost anyhow takes nothing from others.
// Each step of priority counts fourfold.
double Urgency(const Contender& contender);

// Seconds of work that each tenant, and each client of it, has had, of those that matter still.
// One that comes back starts level with the others and saves nothing up (start-time fair queueing:
// Goyal, Vin, Cheng, SIGCOMM 1996, section 2). Plain data.
class FairShares {
 public:
  // `present`: of all requests there are. Lets others go once nobody present has had less.
  void SetPresent(std::span<const ShareName> present);
  // One of those present has had so much more.
  void Charge(const ShareName& share, double seconds);

  // Of those present; 0 for others.
  double had(const std::string& tenant) const;
  double had(const ShareName& share) const;

 private:
  struct Account {
    double had = 0;
    bool present = false;
  };
  struct Tenant {
    Account account;
    std::map<std::string, Account> clients;
  };

  std::map<std::string, Tenant> tenants_;
};

// The order in which the contenders are served, as indices: the tenant that has had least comes
// first, of its clients the one that has had least, of that one's requests the most pressing, and
// the earliest id where they tie. Each place counts as if the work were done, so shares take turns.
std::vector<size_t> ServingOrder(std::span<const Contender> contenders, const FairShares& shares);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_ORDER_H_
