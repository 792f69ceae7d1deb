#include "engine/tiers/disk_remover.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus {

DiskRemover::DiskRemover(DiskStore& store) : store_(store), thread_([this] { Loop(); }) {}

DiskRemover::~DiskRemover() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

absl::Status DiskRemover::Remove(std::vector<std::string> names, std::chrono::milliseconds limit) {
  if (names.empty()) return absl::OkStatus();
  const size_t pages = names.size();
  const auto job = std::make_shared<Job>();
  job->names = std::move(names);
  std::unique_lock lock(mutex_);
  jobs_.push_back(job);
  changed_.notify_all();
  if (changed_.wait_for(lock, limit, [&] { return job->done; })) return job->status;
  return absl::UnavailableError(
      absl::StrCat("the disk is slow: its ", pages,
                   " pages are not used any more, and are still being removed"));
}

void DiskRemover::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    const std::shared_ptr<Job> job = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    absl::Status status = store_.RemoveFiles(job->names);
    lock.lock();
    job->status = std::move(status);
    job->done = true;
    changed_.notify_all();
  }
}

}  // namespace annulus
