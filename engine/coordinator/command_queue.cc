#include "engine/coordinator/command_queue.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/coordinator/serving.h"

namespace annulus {

absl::Status CommandQueue::Submit(std::unique_ptr<Request> request) {
  const RequestId id = request->id();
  const int ahead = waiting_.fetch_add(1);
  // Also if an allocation fails: a request that never enters the queue must not count in it.
  absl::Cleanup not_accepted = [this] { --waiting_; };
  if (ahead < max_waiting_) {
    // The loop may be in the middle of a step, so tell the caller now that the request waits.
    if (busy_) request->ReportQueued(ahead);
    std::lock_guard lock(mutex_);
    alive_.emplace(id, true);
    absl::Cleanup not_alive = [this, id] { alive_.erase(id); };
    if (commands_.TryPush(std::move(request))) {
      std::move(not_alive).Cancel();
      std::move(not_accepted).Cancel();
      return absl::OkStatus();
    }
  }
  return Refuse();
}

absl::Status CommandQueue::Check() { return waiting_ < max_waiting_ ? absl::OkStatus() : Refuse(); }

absl::Status CommandQueue::Refuse() {
  metrics_.CountRejection(AdmissionRejection::kQueueFull);
  return RetryError(absl::StrCat("the queue is full: at most ", max_waiting_,
                                 " requests can wait; try again later"),
                    RetryAfter(turnover_seconds_, waiting_));
}

void CommandQueue::Cancel(RequestId id) {
  {
    std::lock_guard lock(mutex_);
    if (!alive_.contains(id) || !cancels_.insert(id).second) return;
    SetWaitsLocked(id, false);
  }
  Wake();
}

CommandQueue::Commands CommandQueue::Take() {
  Commands commands;
  woken_ = false;  // before it looks, or what comes meanwhile would wake nobody
  {
    // Cancels first: each belongs to a request that is in the queue by now.
    std::lock_guard lock(mutex_);
    commands.cancels.swap(cancels_);
  }
  commands_.DrainInto(commands.requests);
  return commands;
}

std::unique_ptr<Request> CommandQueue::Wait(SteadyTime until) {
  auto request = commands_.Pop(until);
  if (request.has_value() && *request == nullptr) woken_ = false;
  return request.has_value() ? *std::move(request) : nullptr;
}

void CommandQueue::EndWait(RequestId id) {
  std::lock_guard lock(mutex_);
  SetWaitsLocked(id, false);
}

void CommandQueue::WaitAgain(RequestId id) {
  std::lock_guard lock(mutex_);
  if (!cancels_.contains(id)) SetWaitsLocked(id, true);
}

void CommandQueue::SetWaitsLocked(RequestId id, bool waits) {
  const auto found = alive_.find(id);
  if (found == alive_.end() || std::exchange(found->second, waits) == waits) return;
  waits ? ++waiting_ : --waiting_;
}

void CommandQueue::Forget(RequestId id) {
  std::lock_guard lock(mutex_);
  SetWaitsLocked(id, false);
  alive_.erase(id);
  cancels_.erase(id);
}

}  // namespace annulus
