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

// The steps that a coordinator has a worker's ranks run, of one epoch at a time: two at once at
// most, whose results are said in their order. A step that fails ends the epoch here: nothing more
// of it is begun or said. Used by the serving thread alone.
class WorkerSteps {
 public:
  // `say` sends a message to the coordinator. `ranks` must outlive the object.
  WorkerSteps(RankSet& ranks, CodecLimits limits, std::function<void(const wire::FromWorker&)> say)
      : ranks_(ranks), limits_(std::move(limits)), say_(std::move(say)) {}

  // A new epoch has formed.
  void BeginEpoch(uint64_t epoch);

  // Begins the step, or says why not. INVALID_ARGUMENT if the coordinator may not ask for it now.
  absl::Status Start(const wire::Run& run);
  // Waits until the oldest step that runs has ended, and says its results, or why it failed. Fails
  // if the ranks cannot run another. Requires runs().
  absl::Status SayResults();
  // Something else has ended the epoch here.
  void Fail();

  // Whether there is a step whose results were not said.
  bool runs() const { return !running_.empty(); }
  // How many of the epoch have ended and were taken notice of.
  int taken() const { return taken_; }
  bool has_failed() const { return failed_; }

 private:
  void SayFailed(uint64_t step, const absl::Status& why);

  RankSet& ranks_;
  const CodecLimits limits_;
  const std::function<void(const wire::FromWorker&)> say_;
  uint64_t epoch_ = 0;
  uint64_t begun_ = 0;            // steps
  std::deque<uint64_t> running_;  // of these, those whose results were not said
  int taken_ = 0;
  bool failed_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_WORKER_STEPS_H_
