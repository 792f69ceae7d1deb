#ifndef ANNULUS_ENGINE_RUNNER_RANK_THREAD_H_
#define ANNULUS_ENGINE_RUNNER_RANK_THREAD_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/runner/rank_executor.h"

namespace annulus {

// A rank that runs as a thread of this process: it takes one plan at a time and returns one result.
// Only the coordinator may call Start and Wait.
class RankThread {
 public:
  explicit RankThread(const RankParts& parts);
  // Blocks until a running step ends. Abort the channel first if a peer may be gone.
  ~RankThread();
  RankThread(const RankThread&) = delete;
  RankThread& operator=(const RankThread&) = delete;

  // Starts a step. Wait must have returned the previous step's result.
  void Start(std::shared_ptr<const StepPlan> plan);

  // Blocks for the step's result. Returns nothing if `deadline` passes first; Wait may then be
  // called again.
  std::optional<RankResult> Wait(SteadyTime deadline);

  // Forgets every sequence. No step may be running.
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
