#include "server/work/lifecycle.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

constexpr int64_t kRetryLoadingMs = 2000;
constexpr int64_t kRetryDrainingMs = 5000;

absl::Status LoadingError(absl::string_view awaited) {
  return WithRetry(
      ReasonError(absl::StatusCode::kUnavailable, v1::ERROR_REASON_LOADING,
                  awaited.empty()
                      ? std::string("the model is not loaded yet; try again in a moment")
                      : absl::StrCat("the server cannot serve yet: ", awaited)),
      kRetryLoadingMs);
}

}  // namespace

absl::Status DrainingError() {
  return WithRetry(ReasonError(absl::StatusCode::kUnavailable, v1::ERROR_REASON_DRAINING,
                               "the server is stopping and accepts no new work; try another "
                               "server, or this one when it is back"),
                   kRetryDrainingMs);
}

absl::Status CutOffError() {
  return WithRetry(
      ReasonError(absl::StatusCode::kUnavailable, v1::ERROR_REASON_DRAINING,
                  "the server is stopping, and this call did not end within its "
                  "--grace-time; retry on another server, or on this one when it is back"),
      kRetryDrainingMs);
}

void Lifecycle::StartServing(Engine& engine) {
  std::lock_guard lock(mutex_);
  engine_ = &engine;
  if (phase_ == Phase::kLoading) phase_ = Phase::kServing;
}

void Lifecycle::CannotServe(absl::Status why) {
  std::lock_guard lock(mutex_);
  why_none_ = std::move(why);
  if (phase_ == Phase::kLoading) phase_ = Phase::kFailed;
}

absl::Status Lifecycle::NoEngine() const {
  if (why_none_.ok()) return LoadingError(awaited_);
  return ReasonError(absl::StatusCode::kUnavailable, v1::ERROR_REASON_LOADING,
                     absl::StrCat("the server cannot serve: ", why_none_.message()));
}

void Lifecycle::SetAwaited(std::string what) {
  std::lock_guard lock(mutex_);
  awaited_ = std::move(what);
}

std::string Lifecycle::awaited() const {
  std::lock_guard lock(mutex_);
  return awaited_;
}

Phase Lifecycle::phase() const {
  std::lock_guard lock(mutex_);
  return phase_;
}

absl::StatusOr<Engine*> Lifecycle::engine() const {
  std::lock_guard lock(mutex_);
  if (engine_ == nullptr) return NoEngine();
  return engine_;
}

absl::StatusOr<Engine*> Lifecycle::engine_for_changes() const {
  std::lock_guard lock(mutex_);
  if (phase_ == Phase::kDraining) return DrainingError();
  if (engine_ == nullptr) return NoEngine();
  return engine_;
}

absl::StatusOr<Engine*> Lifecycle::Enter(Abortable& work) {
  std::lock_guard lock(mutex_);
  if (phase_ == Phase::kDraining) return DrainingError();
  if (engine_ == nullptr) return NoEngine();
  active_.insert(&work);
  return engine_;
}

void Lifecycle::Leave(Abortable& work) {
  std::lock_guard lock(mutex_);
  active_.erase(&work);
  followed_.erase(&work);
  until_drain_.erase(&work);
  if (active_.empty() && followed_.empty()) changed_.notify_all();
}

void Lifecycle::Follow(Abortable& work) {
  std::lock_guard lock(mutex_);
  followed_.insert(&work);
  if (!cut_off_.ok()) work.Abort(cut_off_);
}

void Lifecycle::FollowUntilDrain(Abortable& work) {
  std::lock_guard lock(mutex_);
  until_drain_.insert(&work);
  if (!cut_off_.ok()) work.Abort(cut_off_);
}

int Lifecycle::active() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(active_.size());
}

void Lifecycle::RequestDrain(std::optional<std::chrono::milliseconds> grace) {
  std::lock_guard lock(mutex_);
  if (phase_ == Phase::kDraining) return;
  phase_ = Phase::kDraining;
  grace_ = grace;
  changed_.notify_all();
}

std::chrono::milliseconds Lifecycle::WaitForDrain(std::chrono::milliseconds default_grace) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return phase_ == Phase::kDraining; });
  return grace_.value_or(default_grace);
}

bool Lifecycle::WaitIdle(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return active_.empty() && followed_.empty(); });
}

bool Lifecycle::WaitEmpty(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(
      lock, limit, [&] { return active_.empty() && followed_.empty() && until_drain_.empty(); });
}

void Lifecycle::AbortAll(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  cut_off_ = status;
  for (Abortable* work : active_) work->Abort(status);
  for (Abortable* work : followed_) work->Abort(status);
  for (Abortable* work : until_drain_) work->Abort(status);
}

}  // namespace annulus::server
