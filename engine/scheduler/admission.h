#ifndef ANNULUS_ENGINE_SCHEDULER_ADMISSION_H_
#define ANNULUS_ENGINE_SCHEDULER_ADMISSION_H_

#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "engine/scheduler/order.h"

namespace annulus {

// What Admission needs to know from, and can ask of, the owner of the memory.
class AdmissionHost {
 public:
  virtual ~AdmissionHost() = default;
  // Whether the pass may continue. Looking at long prompts takes time that running requests wait
  // for; a later pass considers the contenders this one did not reach.
  virtual bool HasTime() = 0;
  // Whether one more request of this share may run: see OwnerSlots.
  virtual bool HasSlot(const Contender& contender) = 0;
  // Whether the contender must wait for a reason other than room. The call may start reading pages
  // for it from a tier, and takes room for them. `large`: as for TryAdmit.
  virtual bool Waits(const Contender& contender, const Contender* large) = 0;
  enum class Answer { kAdmitted, kNoRoom, kLeavesNoRoom };
  // Admits the contender if there is room. Returns kAdmitted also if the request has ended for
  // another reason. `large`: the request for which room is gathered, or null. With it, admits only
  // if `large` will still fit once everything that was running when gathering began has ended;
  // otherwise returns kLeavesNoRoom.
  virtual Answer TryAdmit(const Contender& contender, const Contender* large) = 0;
};

// Decides which waiting requests start. A request that does not fit does not block one that does,
// until it has waited as long as its prompt takes alone, or 1 s if that is more. From then on room
// is gathered for it: others start only if they leave that room. This is done for one request at a
// time, the first such in serving order. Since every running request ends, its turn comes.
//
// A request that ends at its deadline does not start while the prompts before it leave it too
// little time: it would take a place and time from others, and still not be complete.
//
// Remembers which requests found no room, until RoomMayHaveCome is called, so that passes in
// between do not ask for them again. Uses no clock and no thread. Not thread-safe.
class Admission {
 public:
  // Makes one pass over the waiting requests, until the host has no more time or 16 requests found
  // no room. `begun`: the running requests whose prompts are not fully computed. Returns the
  // indices of all `waiting` in ServingOrder, except that the request for which room is gathered
  // comes first.
  std::vector<size_t> Run(std::span<const Contender> waiting, std::span<const Contender> begun,
                          const FairShares& shares, AdmissionHost& host);

  // Call whenever room may have become available, for example because a request ended.
  void RoomMayHaveCome() { no_room_.clear(); }
  // Call when the request has ended or was preempted.
  void Forget(SequenceId id);

 private:
  std::unordered_set<SequenceId> no_room_;
  std::optional<SequenceId> gathering_;  // the request for which room is gathered
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_ADMISSION_H_
