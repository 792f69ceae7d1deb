#ifndef ANNULUS_ENGINE_SCHEDULER_ADMISSION_H_
#define ANNULUS_ENGINE_SCHEDULER_ADMISSION_H_

#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "engine/scheduler/order.h"

namespace annulus {

// What admission asks of whoever has the memory.
class AdmissionHost {
 public:
  virtual ~AdmissionHost() = default;
  // Whether the pass may go on: looking at long prompts takes time that those who run wait for. Who
  // is not asked in this pass is asked in a later one.
  virtual bool HasTime() = 0;
  // Whether there is a place for one more request of this share among those that run.
  virtual bool HasPlace(const Contender& contender) = 0;
  // Whether it should not begin yet for another reason than room. `large`: as for TryAdmit; what it
  // waits for must leave that room too.
  virtual bool Waits(const Contender& contender, const Contender* large) = 0;
  enum class Answer { kAdmitted, kNoRoom, kLeavesNoRoom };
  // Admits it if there is room; kAdmitted also where it has ended for another reason. If `large` is
  // given, only where `large` still fits once all that ran before room was gathered for it has
  // ended.
  virtual Answer TryAdmit(const Contender& contender, const Contender* large) = 0;
};

// Decides who begins. A request that fits is not held by one that does not, until that one has
// waited as long as its prompt takes alone: then room is gathered for the first such in the order,
// and others begin only beside it. Since every running request ends, its turn comes.
//
// Remembers who had no room since the last request ended, so that a turn without news asks nobody
// twice. Pure but for that: knows no clock, memory or thread.
class Admission {
 public:
  // One pass over all that wait, as far as there is time for it, in ServingOrder, which it returns;
  // for whom room is gathered comes first.
  std::vector<size_t> Run(std::span<const Contender> waiting, const FairShares& shares,
                          AdmissionHost& host);

  // A request that ran, or waited, is no more, or anything else gave room.
  void RoomMayHaveCome() { no_room_.clear(); }
  void Forget(SequenceId id);

  // For whom room is gathered.
  std::optional<SequenceId> gathering() const { return gathering_; }

 private:
  std::unordered_set<SequenceId> no_room_;
  std::optional<SequenceId> gathering_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_ADMISSION_H_
