#ifndef ANNULUS_ENGINE_RUNNER_RANK_THREAD_H_
#define ANNULUS_ENGINE_RUNNER_RANK_THREAD_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/runner/rank_executor.h"

namespace annulus {

// A rank that is a thread of this process: it takes one plan at a time and gives one result back.
// Start and Wait are called by the coordinator alone.
class RankThread {
 public:
  explicit RankThread(const RankParts& parts);
  // Waits for a running step; abort its channel first if a peer may be gone.
  ~RankThread();
  RankThread(const RankThread&) = delete;
  RankThread& operator=(const RankThread&) = delete;

  // Begins a step. The step before must have been waited for.
  void Start(std::shared_ptr<const StepPlan> plan);

  // The result of the step, or nothing when `deadline` passes first; then Wait may be called again.
  std::optional<RankResult> Wait(SteadyTime deadline);

  // Forgets every sequence. Only while no step runs.
  void Reset();

 private:
  void Loop();

  RankExecutor executor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const StepPlan> plan_;
  std::optional<RankResult> result_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_THREAD_H_
