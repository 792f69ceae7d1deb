#ifndef ANNULUS_ENGINE_COORDINATOR_PLANNING_PLAN_QUEUE_H_
#define ANNULUS_ENGINE_COORDINATOR_PLANNING_PLAN_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/api/plan.h"
#include "engine/api/request.h"
#include "engine/base/clock.h"
#include "engine/base/work_meter.h"

namespace annulus {

// Passes questions (what would this request take?) to the coordinator's thread, the only one that
// may look at pages and prefixes. At most kMost questions wait. The coordinator answers one
// between two steps, so a step is delayed by one answer at most. Thread-safe.
class PlanQueue {
 public:
  static constexpr size_t kMost = 16;
  static constexpr std::chrono::seconds kLongest{10};

  // `clock` must outlive the queue.
  explicit PlanQueue(const Clock& clock) : clock_(clock) {}

  // Queues the question and blocks (in cancel.WaitAside) until it is answered. `wake` must make the
  // coordinator call AnswerOne soon. RESOURCE_EXHAUSTED with a retry hint: kMost questions wait, or
  // none was answered within kLongest. UNAVAILABLE after Close. CANCELLED if `cancel` is set.
  absl::StatusOr<RequestPlan> Ask(RequestSpec spec, const std::function<void()>& wake,
                                  const CancelFlag& cancel);

  // For the coordinator: answers the next question, if one waits. Returns whether more wait.
  bool AnswerOne(const std::function<RequestPlan(const RequestSpec& spec)>& answer);

  // Fails all questions that wait, and all later ones.
  void Close();

 private:
  struct Question {
    explicit Question(RequestSpec spec) : spec(std::move(spec)) {}
    const RequestSpec spec;
    std::optional<absl::StatusOr<RequestPlan>> answer;
  };

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable answered_;
  std::deque<std::shared_ptr<Question>> waiting_;
  bool closed_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_PLANNING_PLAN_QUEUE_H_
