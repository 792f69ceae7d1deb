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

// Names the share that a request uses: its tenant's; in that, its client's (the caller's address);
// in that, its connection's. Opening more connections gains nobody a larger share.
struct ShareName {
  std::string tenant;
  std::string client;
  std::string connection = {};

  static constexpr size_t kLevels = 3;
  // The level of the owner: 0, the tenant, or 1, the client, for callers without a tenant.
  size_t owner_level() const;
  // Names that tenant or client among all tenants and clients; empty if there is neither.
  std::string owner() const;
  const std::string& level(size_t i) const {
    return i == 0 ? tenant : i == 1 ? client : connection;
  }

  friend bool operator==(const ShareName&, const ShareName&) = default;
  friend auto operator<=>(const ShareName&, const ShareName&) = default;
};

// A request whose prompt is not fully computed, whether it waits or runs.
struct Contender {
  SequenceId id = 0;
  ShareName share = {};
  int priority = 0;      // RequestSpec::priority
  double elapsed = 0;    // seconds since it was submitted
  double remaining = 0;  // time for the rest of its prompt if it ran alone
  double total = 0;      // the same for its whole prompt, including what is done
  double answer = 0;     // time that its answer is expected to take after that
  double slowed = 1;     // how many times as long prompts take now as alone: PromptPace
  double until_deadline = std::numeric_limits<double>::infinity();  // in seconds
  bool ends_at_deadline = false;  // an answer that is not complete by then is lost

  bool begun() const { return remaining < total; }
};

// By how much a step of priority multiplies Urgency.
inline constexpr double kStepOfPriority = 4;

// Predicted seconds from now until the answer is complete, if other prompts come first that take
// `ahead` seconds alone. Includes a margin for wrong predictions.
double SecondsNeeded(const Contender& contender, double ahead = 0);

// Most seconds that a request waits until its stretch alone (see Urgency) reaches `urgency`.
double SecondsToReach(double urgency, const Contender& contender);

// How pressing a request is; 1 if waiting a little costs it nothing. The larger of:
// - its stretch: the time from submission to its first token if it continues now, divided by the
//   time that its prompt takes alone. It grows with waiting, faster for shorter requests, so short
//   requests come soon and long ones come eventually, whatever else arrives. What is nearly done
//   counts up to twice as much, since it holds others only briefly; not more, or the end of a very
//   long prompt would hold a short request for many times what that takes itself. Requests that
//   have begun count a quarter more, so that equal ones finish one after the other instead of all
//   at the end;
// - the time to its deadline, divided by the slack: the part of that time that is left over if it
//   runs alone now. Ignored if the deadline cannot be met. If the answer is lost then, the request
//   comes after all others.
// Each step of priority multiplies the result by kStepOfPriority.
//
// Priority also weighs shares, but only below the level of the request's owner: among the clients
// and connections of a tenant, one whose requests have one step more priority gets four times as
// much. It never takes anything from other tenants.
double Urgency(const Contender& contender);

// Work that a step did for one share.
struct ShareUse {
  ShareName share = {};
  double seconds = 0;
  bool prompt = false;  // prompt work, for which shares contend; false: a running stream
  int priority = 0;     // see Contender::priority
};

// How many seconds of work each tenant, each of its clients and each of their connections has
// received (self-clocked fair queueing: Golestani, INFOCOM 1994). Keeps only accounts that still
// matter.
//
// At each level there is a virtual time: the least work received among the accounts whose prompts
// the last step served. It never goes back. An account that starts to contend is set to that time,
// unless it has received more already. So nobody can save up credit by not using its share, or gain
// by leaving, or by returning under another name. Plain data.
class FairShares {
 public:
  // Sets the shares of all requests whose prompts are not fully computed. A level at which nobody
  // contends any more is reset.
  void SetContending(std::span<const ShareName> contending);
  // Records the work of a finished step.
  void Charge(std::span<const ShareUse> step);

  // Work received by the account named by the first `levels` names of the share. If it has no
  // account and does not contend, returns what it would start with.
  double had(const ShareName& share, size_t levels = ShareName::kLevels) const;

 private:
  struct Account {
    double had = 0;
    bool contends = false;
    bool contended = false;  // before the last SetContending
    double time = 0;         // virtual time of the accounts below
    std::map<std::string, Account> below = {};
  };

  static void SetContending(Account& account, std::span<const ShareName> contending, size_t level);
  static void Advance(Account& account, std::span<const ShareUse> step, size_t level);

  Account all_;
};

// Returns the contenders' indices in serving order. First the tenant that has received least,
// within it the client that has received least, likewise the connection, and within that the most
// urgent request; ties go to the lowest id. Each placed request counts as work received, so shares
// alternate.
std::vector<size_t> ServingOrder(std::span<const Contender> contenders, const FairShares& shares);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_ORDER_H_
