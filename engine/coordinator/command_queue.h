#ifndef ANNULUS_ENGINE_COORDINATOR_COMMAND_QUEUE_H_
#define ANNULUS_ENGINE_COORDINATOR_COMMAND_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/bounded_queue.h"
#include "engine/base/clock.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/request/request.h"
#include "engine/scheduler/owner_slots.h"

namespace annulus {

// Passes requests and cancels from callers' threads to the coordinator's loop, and limits how many
// requests wait, here or in the loop: a part of the places is kept from whoever has the most. The
// methods of the first part are thread-safe; the others are for the loop's thread alone.
class CommandQueue {
 public:
  // `max_waiting`: most requests that wait. The references must outlive the queue.
  CommandQueue(int max_waiting, EngineMetrics& metrics, const Clock& clock)
      : metrics_(metrics),
        commands_(static_cast<size_t>(max_waiting) + kMostCancelled, clock),
        slots_(max_waiting) {}

  // Queues a request; tells it at once that it waits if the loop is busy. RESOURCE_EXHAUSTED with a
  // retry hint if max_waiting requests wait already or this owner's share of them (OwnerSlots), or
  // after Close.
  absl::Status Submit(std::unique_ptr<Request> request);
  // The error with which Submit would refuse a request of this owner (ShareName::owner) now,
  // counted as Submit does; OK if there is room.
  absl::Status Check(const std::string& owner);
  // Has the loop cancel the request, which from now on takes no place among those that wait: a step
  // may be long, and clients that come and leave during it must not fill the queue of others. No-op
  // if it has ended or is unknown.
  void Cancel(RequestId id);
  // Has the loop take one more turn.
  void Wake() {
    // One wake-up is enough, and a full queue means that the loop has a turn to take.
    if (!woken_.exchange(true)) commands_.TryPush(nullptr);
  }
  // Refuses all later requests. Those that were accepted are still taken.
  void Close() { commands_.Close(); }

  // ---- for the loop

  struct Commands {
    std::vector<std::unique_ptr<Request>> requests;  // null: only a wake-up
    std::set<RequestId> cancels;  // each of a request that is in `requests` or was taken earlier
  };
  // Takes all that has come.
  Commands Take();
  // Blocks until a request comes, the loop is woken, or `until`. Returns the request, if one came.
  std::unique_ptr<Request> Wait(SteadyTime until);

  // The request waits no more, because it has begun to run.
  void EndWait(RequestId id);
  // The request was preempted, and waits again.
  void WaitAgain(RequestId id);
  // The request has ended: it does not wait, and later cancels are no-ops.
  void Forget(RequestId id);
  // Whether requests that come are told that they wait.
  void set_busy(bool busy) { busy_ = busy; }
  // Serving::turnover_seconds, from which the retry hint follows.
  void set_turnover(double seconds) { turnover_seconds_ = seconds; }

 private:
  // Counts a refusal and returns its error.
  absl::Status RefuseLocked();

  // Cancelled requests that the loop has not taken yet, and one wake-up.
  static constexpr size_t kMostCancelled = 4096;

  // Counts the request among those that wait, or no more, if it does not count so already.
  void SetWaitsLocked(RequestId id, bool waits);

  // A request that was submitted and has not ended.
  struct Alive {
    std::string owner;
    bool waits = false;  // has a slot
  };

  EngineMetrics& metrics_;
  BoundedQueue<std::unique_ptr<Request>> commands_;  // null: only a wake-up
  std::atomic<bool> woken_{false};                   // since the loop last looked
  std::atomic<bool> busy_{false};
  std::atomic<double> turnover_seconds_{0.5};

  // Cancels are not in the queue, because it can be full. There is at most one for each request
  // alive.
  std::mutex mutex_;
  OwnerSlots slots_;  // of requests that are neither admitted nor cancelled
  std::unordered_map<RequestId, Alive> alive_;
  std::set<RequestId> cancels_;  // that the loop has not taken yet
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_COMMAND_QUEUE_H_
