#ifndef ANNULUS_ENGINE_COORDINATOR_COMMAND_QUEUE_H_
#define ANNULUS_ENGINE_COORDINATOR_COMMAND_QUEUE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_set>
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
      : max_waiting_(max_waiting), metrics_(metrics), commands_(max_waiting + 2, clock) {}

  // Queues a request; tells it at once that it waits if the loop is busy. RESOURCE_EXHAUSTED with a
  // retry hint if max_waiting requests wait already, or after Close.
  absl::Status Submit(std::unique_ptr<Request> request);
  // The error with which Submit would refuse a request now, counted as Submit does; OK if there is
  // room.
  absl::Status Check();
  // Has the loop cancel the request. No-op if it has ended or is unknown.
  void Cancel(RequestId id);
  // Has the loop take one more turn.
  void Wake() { commands_.TryPush(nullptr); }  // a full queue means that it is awake
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

  // So many requests wait no more: they have begun to run, or ended.
  void EndWait(int requests) { waiting_ -= requests; }
  // A preempted request waits again.
  void WaitAgain() { ++waiting_; }
  // The request has ended: later cancels are no-ops.
  void Forget(RequestId id);
  // Whether requests that come are told that they wait.
  void set_busy(bool busy) { busy_ = busy; }
  // Serving::turnover_seconds, from which the retry hint follows.
  void set_turnover(double seconds) { turnover_seconds_ = seconds; }

 private:
  // Counts a refusal and returns its error.
  absl::Status Refuse();

  const int max_waiting_;
  EngineMetrics& metrics_;
  BoundedQueue<std::unique_ptr<Request>> commands_;  // null: only a wake-up
  std::atomic<int> waiting_{0};                      // submitted and not yet admitted
  std::atomic<bool> busy_{false};
  std::atomic<double> turnover_seconds_{0.5};

  // Cancels are not in the queue, because it can be full. There is at most one for each request
  // alive.
  std::mutex mutex_;
  std::unordered_set<RequestId> alive_;  // submitted and not ended
  std::set<RequestId> cancels_;          // that the loop has not taken yet
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_COMMAND_QUEUE_H_
