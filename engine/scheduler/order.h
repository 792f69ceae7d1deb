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

// Whose share a request uses: first its tenant's, of that one's its client's (the address that it
// comes from), of that one's its connection's. So nobody has more for bringing more connections.
struct ShareName {
  std::string tenant;
  std::string client;
  std::string connection = {};

  static constexpr size_t kLevels = 3;
  // Who answers for it: the tenant, or of callers that are nobody's in particular the client.
  size_t owner_level() const;
  const std::string& level(size_t i) const {
    return i == 0 ? tenant : i == 1 ? client : connection;
  }

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
//
// Priority also weighs shares, but only below whoever owns the request: of a tenant's clients and
// connections, one whose requests have a step more has four times as much. So it takes nothing from
// other tenants.
double Urgency(const Contender& contender);

// Work that a step has done for one share.
struct ShareUse {
  ShareName share = {};
  double seconds = 0;
  bool prompt = false;  // of a prompt, for which shares contend; else of a stream that runs anyway
  int priority = 0;     // as Contender::priority
};

// Seconds of work that each tenant, each client of it and each connection of that has had, of those
// that matter still. At each level a virtual time follows what the one that is served has had, and
// never goes back; whoever begins to contend starts there, or at what it has had if that is more.
// So nobody saves anything up, and nobody gains by leaving, or by coming again under another name
// (self-clocked fair queueing: Golestani, INFOCOM 1994). Plain data.
class FairShares {
 public:
  // `contending`: of all requests whose prompt is not computed yet. Once none does at a level, all
  // there start anew.
  void SetContending(std::span<const ShareName> contending);
  // A step was run.
  void Charge(std::span<const ShareUse> step);

  // What the first `levels` names of the share, as one account, have had; where they do not contend
  // and have no account, what they would start with.
  double had(const ShareName& share, size_t levels = ShareName::kLevels) const;

 private:
  struct Account {
    double had = 0;
    bool contends = false;
    bool contended = false;  // before the last change
    double time = 0;         // virtual, of the accounts below
    std::map<std::string, Account> below = {};
  };

  static void SetContending(Account& account, std::span<const ShareName> contending, size_t level);
  static void Advance(Account& account, std::span<const ShareUse> step, size_t level);

  Account all_;
};

// The order in which the contenders are served, as indices: the tenant that has had least comes
// first, of its clients the one that has had least, likewise of that one's connections, of its
// requests the most pressing, and the earliest id where they tie. Each place counts as if the work
// were done, so shares take turns.
std::vector<size_t> ServingOrder(std::span<const Contender> contenders, const FairShares& shares);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_ORDER_H_
