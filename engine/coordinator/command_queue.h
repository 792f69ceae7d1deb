#ifndef ANNULUS_ENGINE_COORDINATOR_COMMAND_QUEUE_H_
#define ANNULUS_ENGINE_COORDINATOR_COMMAND_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/bounded_queue.h"
#include "engine/base/clock.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/request/request.h"

namespace annulus {

// Passes requests and cancels from callers' threads to the coordinator's loop, and limits how many
// requests wait, here or in the loop. The methods of the first part are thread-safe; the others are
// for the loop's thread alone.
class CommandQueue {
 public:
  // `max_waiting`: most requests that wait. The references must outlive the queue.
  CommandQueue(int max_waiting, EngineMetrics& metrics, const Clock& clock)
      : max_waiting_(max_waiting),
        metrics_(metrics),
        commands_(static_cast<size_t>(max_waiting) + kMostCancelled, clock) {}

  // Queues a request; tells it at once that it waits if the loop is busy. RESOURCE_EXHAUSTED with a
  // retry hint if max_waiting requests wait already, or after Close.
  absl::Status Submit(std::unique_ptr<Request> request);
  // The error with which Submit would refuse a request now, counted as Submit does; OK if there is
  // room.
  absl::Status Check();
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
  absl::Status Refuse();

  // Cancelled requests that the loop has not taken yet, and one wake-up.
  static constexpr size_t kMostCancelled = 4096;

  // Counts the request among those that wait, or no more, if it does not count so already.
  void SetWaitsLocked(RequestId id, bool waits);

  const int max_waiting_;
  EngineMetrics& metrics_;
  BoundedQueue<std::unique_ptr<Request>> commands_;  // null: only a wake-up
  std::atomic<bool> woken_{false};                   // since the loop last looked
  std::atomic<int> waiting_{0};  // submitted, and neither admitted nor cancelled
  std::atomic<bool> busy_{false};
  std::atomic<double> turnover_seconds_{0.5};

  // Cancels are not in the queue, because it can be full. There is at most one for each request
  // alive.
  std::mutex mutex_;
  std::unordered_map<RequestId, bool> alive_;  // submitted and not ended; whether it is in waiting_
  std::set<RequestId> cancels_;                // that the loop has not taken yet
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_COMMAND_QUEUE_H_
