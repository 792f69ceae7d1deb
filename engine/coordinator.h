#ifndef ANNULUS_ENGINE_COORDINATOR_H_
#define ANNULUS_ENGINE_COORDINATOR_H_

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "engine/base/bounded_queue.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/request.h"
#include "engine/runner/rank_set.h"
#include "engine/scheduler/scheduler.h"

namespace annulus {

struct CoordinatorOptions {
  PlanLimits limits;
  ModePolicy modes;
  int max_running = 64;
  int max_waiting = 256;
  std::chrono::milliseconds slow_reader_timeout{30'000};
};

// The engine's loop: one thread that takes commands, admits requests, plans steps, has the ranks
// run them, and passes results on. It alone touches the engine state and allocates every rank's
// pages.
class Coordinator {
 public:
  // All references outlive the coordinator. The loop starts at once.
  Coordinator(const CoordinatorOptions& options, RankSet& ranks, EngineMetrics& metrics,
              std::vector<int32_t> end_of_text_ids, int32_t vocabulary);
  // Cancels everything and joins.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Thread-safe. RESOURCE_EXHAUSTED with a retry hint when as many wait as may wait.
  absl::Status Submit(std::unique_ptr<Request> request);

  // Thread-safe.
  void Cancel(RequestId id);

  // Thread-safe: how things stood after the last turn of the loop. `ranks` is left empty.
  struct Snapshot {
    int running = 0;
    int waiting = 0;
    bool healthy = true;
    SteadyTime last_turn{};
    bool busy = false;                // a step runs or is due
    std::vector<int64_t> pages_held;  // [rank]
    std::vector<int64_t> pages_total;
  };
  Snapshot Look() const;

 private:
  struct CancelCommand {
    RequestId id;
  };
  using Command = std::variant<std::unique_ptr<Request>, CancelCommand>;

  void Loop();
  void TakeCommands();
  void Handle(Command command);
  SteadyTime NextWake() const;
  void ExpireDeadlines();
  void UpdatePaused();
  void AdmitWaiting();
  bool TryAdmit(Request& request);
  bool RunStep();
  void UseResults(const StepPlan& plan, const std::vector<RankResult>& results);
  void UseToken(const SampledToken& token);
  void RecordRing(const StepPlan& plan, const std::vector<RankResult>& results);
  void Finish(RequestId id, FinishReason reason, absl::Status status);
  void FinishAll(FinishReason reason, const absl::Status& status, bool waiting_too);
  void Publish(bool busy);

  const CoordinatorOptions options_;
  RankSet& ranks_;
  EngineMetrics& metrics_;
  const std::vector<int32_t> end_of_text_ids_;
  const int32_t vocabulary_;

  BoundedQueue<Command> commands_;
  std::atomic<int> waiting_count_{0};  // submitted and not yet admitted
  std::atomic<bool> stop_{false};

  // The loop's own.
  EngineState state_;
  std::map<RequestId, std::unique_ptr<Request>> requests_;
  std::deque<RequestId> waiting_;

  mutable std::mutex snapshot_mutex_;
  Snapshot snapshot_;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_H_
