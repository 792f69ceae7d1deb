#ifndef ANNULUS_ENGINE_RUNNER_RANK_THREAD_H_
#define ANNULUS_ENGINE_RUNNER_RANK_THREAD_H_

#include <array>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/runner/rank_executor.h"

namespace annulus {

// A rank that runs as a thread of this process: it takes one plan at a time and returns one result.
// Only the coordinator may call Wait.
class RankThread {
 public:
  // `on_end`: called on the thread when a step has ended, before Wait returns its result; `ok`: it
  // did not fail. It may call Start of any rank's thread.
  RankThread(const RankParts& parts, std::function<void(bool ok)> on_end);
  // Blocks until a running step ends. Abort the channel first if a peer may be gone.
  ~RankThread();
  RankThread(const RankThread&) = delete;
  RankThread& operator=(const RankThread&) = delete;

  // Starts a step. The previous one must have ended, and Wait must have returned the result of the
  // one before that. Thread-safe.
  void Start(std::shared_ptr<const StepPlan> plan);

  // Blocks for the result of the oldest step that has none yet. Returns nothing if `deadline`, a
  // time of the heartbeat's clock, passes first; Wait may then be called again.
  std::optional<RankResult> Wait(SteadyTime deadline);

  // Forgets every sequence. No step may be running.
  void Reset();

 private:
  void Loop();

  const Clock& clock_;
  RankExecutor executor_;
  const std::function<void(bool ok)> on_end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const StepPlan> plan_;
  std::array<std::optional<RankResult>, 2> results_;  // the older one first
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_THREAD_H_
