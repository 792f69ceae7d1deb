#include "server/documents/disk_thread.h"

#include <algorithm>
#include <utility>

#include "kernels/base/guarded.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookInterval{
    20};  // how soon a caller that waits sees its flag
constexpr int64_t kRetrySlowDiskMilliseconds = 5000;

absl::Status SlowDiskError() {
  return WithRetry(
      ReasonError(absl::StatusCode::kUnavailable, v1::ERROR_REASON_DISK_SLOW,
                  "the disk that keeps the documents does not answer; try again later"),
      kRetrySlowDiskMilliseconds);
}

absl::Status NoMemoryError() {
  return absl::ResourceExhaustedError("no memory is left for a call to the disk");
}

}  // namespace

DiskThread::DiskThread(std::chrono::milliseconds most_call)
    : most_call_(most_call), thread_([this] { Loop(); }) {}

DiskThread::~DiskThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

absl::Status DiskThread::Run(Call call, const CancelFlag& cancel, bool* begun) {
  const std::shared_ptr<Job> job = Add(std::move(call));
  absl::Status status;
  bool has_begun = true;
  cancel.WaitAside([&] { status = Wait(job, cancel, has_begun); });
  if (begun != nullptr) *begun = has_begun;
  return status;
}

void DiskThread::Post(Call call) { Add(std::move(call)); }

std::shared_ptr<DiskThread::Job> DiskThread::Add(Call call) {
  auto job = std::make_shared<Job>(std::move(call));
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  changed_.notify_all();
  return job;
}

bool DiskThread::HangsLocked() const {
  return begun_.has_value() && steady_clock::now() - *begun_ > most_call_;
}

absl::Status DiskThread::Wait(const std::shared_ptr<Job>& job, const CancelFlag& cancel,
                              bool& begun) {
  std::unique_lock lock(mutex_);
  while (!job->done && !cancel.cancelled() && !HangsLocked()) {
    changed_.wait_for(lock, kLookInterval);
  }
  if (job->done) return job->status;
  const auto waiting = std::find(jobs_.begin(), jobs_.end(), job);
  begun = waiting == jobs_.end();
  if (!begun) jobs_.erase(waiting);
  return cancel.cancelled() ? absl::CancelledError("the call was cancelled") : SlowDiskError();
}

void DiskThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::shared_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    begun_ = steady_clock::now();
    lock.unlock();
    absl::Status status = Guarded(job->call, NoMemoryError);
    job->call = nullptr;  // what it owns may need the disk too
    lock.lock();
    begun_.reset();
    job->status = std::move(status);
    job->done = true;
    changed_.notify_all();
    lock.unlock();
    job.reset();
    lock.lock();
  }
}

}  // namespace annulus::server
