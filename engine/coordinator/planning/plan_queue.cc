#include "engine/coordinator/planning/plan_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "kernels/base/guarded.h"

namespace annulus {
namespace {

constexpr std::chrono::milliseconds kRetry{500};
// How soon a cancel is seen.
constexpr std::chrono::milliseconds kLook{20};

absl::Status Ended() {
  return absl::UnavailableError("the server is shutting down; try again when it is back");
}

}  // namespace

absl::StatusOr<RequestPlan> PlanQueue::Ask(RequestSpec spec, const std::function<void()>& wake,
                                           const CancelFlag& cancel) {
  const auto question = std::make_shared<Question>(std::move(spec));
  {
    std::lock_guard lock(mutex_);
    if (closed_) return Ended();
    if (waiting_.size() >= kMost) {
      return RetryError(
          absl::StrCat(kMost, " plans, the maximum, are waiting; try again in a moment"), kRetry);
    }
    waiting_.push_back(question);
  }
  wake();
  const SteadyTime late = clock_.Now() + kLongest;
  cancel.WaitAside([&] {
    std::unique_lock lock(mutex_);
    while (!question->answer.has_value() && !cancel.cancelled() && clock_.Now() < late) {
      answered_.wait_for(lock, kLook);
    }
  });
  std::lock_guard lock(mutex_);
  if (question->answer.has_value()) return *std::move(question->answer);
  std::erase(waiting_, question);
  if (cancel.cancelled()) return absl::CancelledError("the call was cancelled");
  return RetryError(absl::StrCat("the engine was busy for ", kLongest.count(),
                                 " s and did not answer; try again in a moment"),
                    kRetry);
}

bool PlanQueue::AnswerOne(const std::function<RequestPlan(const RequestSpec& spec)>& answer) {
  std::shared_ptr<Question> question;
  {
    std::lock_guard lock(mutex_);
    if (waiting_.empty()) return false;
    question = std::move(waiting_.front());
    waiting_.pop_front();
  }
  absl::StatusOr<RequestPlan> plan = RequestPlan();
  const absl::Status made = Guarded(
      [&] {
        plan = answer(question->spec);
        return absl::OkStatus();
      },
      NoMemoryError);
  if (!made.ok()) plan = made;
  std::lock_guard lock(mutex_);
  question->answer = std::move(plan);
  answered_.notify_all();
  return !waiting_.empty();
}

void PlanQueue::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& question : waiting_) question->answer = Ended();
  waiting_.clear();
  answered_.notify_all();
}

}  // namespace annulus
