#ifndef ANNULUS_ENGINE_WORKERS_WORKER_STEPS_H_
#define ANNULUS_ENGINE_WORKERS_WORKER_STEPS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "engine/codec/step_codec.h"
#include "engine/runner/rank_set.h"
#include "engine/workers/control_messages.h"

namespace annulus {

// The steps of an epoch that the coordinator has this worker's ranks run, at most two at once.
// Sends their results in order. A step that fails ends the epoch on this worker: until BeginEpoch,
// no step begins and no result is sent. Used by the serving thread alone.
class WorkerSteps {
 public:
  // `say` sends a message to the coordinator. `ranks` must outlive the object.
  WorkerSteps(RankSet& ranks, CodecLimits limits, std::function<void(const wire::FromWorker&)> say)
      : ranks_(ranks), limits_(std::move(limits)), say_(std::move(say)) {}

  // Call when a new epoch has formed.
  void BeginEpoch(uint64_t epoch);

  // Begins the step. If its plan is invalid, tells the coordinator so. INVALID_ARGUMENT if the
  // coordinator may not ask for it now.
  absl::Status Start(const wire::Run& run);
  // Waits until the oldest running step has ended, and sends its results, or why it failed. Returns
  // an error if the ranks cannot run another step. Requires runs().
  absl::Status SayResults();
  // Call when something else has ended the epoch on this worker.
  void Fail();

  // Whether a step runs, or has ended and its results were not sent.
  bool runs() const { return !running_.empty(); }
  // How many steps of the epoch SayResults has taken the results of.
  int taken() const { return taken_; }
  bool has_failed() const { return failed_; }

 private:
  void SayFailed(uint64_t step, const absl::Status& why);

  RankSet& ranks_;
  const CodecLimits limits_;
  const std::function<void(const wire::FromWorker&)> say_;
  uint64_t epoch_ = 0;
  uint64_t begun_ = 0;            // steps
  std::deque<uint64_t> running_;  // those of them whose results were not sent
  int taken_ = 0;
  bool failed_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_WORKER_STEPS_H_
