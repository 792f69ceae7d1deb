#include "engine/coordinator/command_queue.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/base/try_to.h"
#include "engine/coordinator/serving.h"

namespace annulus {

absl::Status CommandQueue::Submit(std::unique_ptr<Request> request) {
  const RequestId id = request->id();
  std::string owner = ShareOf(request->spec()).owner();
  // Also if an allocation fails: a request that never enters the queue must not count in it.
  absl::Cleanup not_accepted = [this, id] { Forget(id); };
  int ahead = 0;
  {
    std::lock_guard lock(mutex_);
    if (!slots_.Has(owner)) return RefuseLocked();
    ahead = slots_.taken();
    alive_.emplace(id, Alive{std::move(owner)});
    SetWaitsLocked(id, true);
  }
  // The loop may be in the middle of a step, so tell the caller now that the request waits.
  if (busy_) request->ReportQueued(ahead);
  if (commands_.TryPush(std::move(request))) {
    std::move(not_accepted).Cancel();
    return absl::OkStatus();
  }
  std::lock_guard lock(mutex_);
  return RefuseLocked();
}

absl::Status CommandQueue::Check(const std::string& owner) {
  std::lock_guard lock(mutex_);
  return slots_.Has(owner) ? absl::OkStatus() : RefuseLocked();
}

absl::Status CommandQueue::RefuseLocked() {
  metrics_.CountRejection(AdmissionRejection::kQueueFull);
  const bool full = slots_.taken() >= slots_.most();
  return RetryError(
      absl::StrCat(
          full ? "the queue is full: at most " : "your share of the queue is full: at most ",
          full ? slots_.most() : slots_.most_of_owner(),
          full ? " requests can wait" : " requests of one tenant or client can wait",
          "; try again later"),
      RetryAfter(turnover_seconds_, slots_.taken()));
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
  // Without memory it waits without a slot.
  if (!cancels_.contains(id)) TryTo([&] { SetWaitsLocked(id, true); });
}

void CommandQueue::SetWaitsLocked(RequestId id, bool waits) {
  const auto found = alive_.find(id);
  if (found == alive_.end() || found->second.waits == waits) return;
  waits ? slots_.Take(found->second.owner) : slots_.Give(found->second.owner);
  found->second.waits = waits;
}

void CommandQueue::Forget(RequestId id) {
  std::lock_guard lock(mutex_);
  SetWaitsLocked(id, false);
  alive_.erase(id);
  cancels_.erase(id);
}

}  // namespace annulus
