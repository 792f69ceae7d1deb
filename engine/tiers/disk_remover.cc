#include "engine/tiers/disk_remover.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "kernels/base/guarded.h"

namespace annulus {
namespace {

using std::chrono::milliseconds;

constexpr size_t kFilesInATurn = 64;       // of one tenant
constexpr milliseconds kLookInterval{20};  // how soon a caller that waits sees its flag

// Leaves a note or takes it back. Does nothing if there is no memory for its name.
template <typename Call>
void Note(const Call& call) {
  const auto note = [&] {
    call();
    return absl::OkStatus();
  };
  Guarded(note, [] { return absl::ResourceExhaustedError(""); }).IgnoreError();
}

}  // namespace

DiskRemover::DiskRemover(DiskStore& store, const Options& options, const Clock& clock)
    : store_(store),
      options_(options),
      clock_(clock),
      no_memory_(NoMemoryError()),
      remover_([this] { RemoveLoop(); }),
      watch_([this] { WatchLoop(); }) {}

DiskRemover::~DiskRemover() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  remover_.join();
  watch_.join();
}

absl::Status DiskRemover::Remove(const ContentHash& tenant, DiskStore::Deletion deletion,
                                 const CancelFlag& cancel) {
  if (deletion.pages.empty()) return absl::OkStatus();
  std::shared_ptr<Job> job;
  const auto add = [&] {
    job = Add(tenant, std::move(deletion));
    return absl::OkStatus();
  };
  if (!Guarded(add, [&] { return no_memory_; }).ok()) {
    // The limit still counts the files, and nothing will remove them.
    store_.TurnOff(no_memory_);
    return no_memory_;
  }
  absl::Status status;
  cancel.WaitAside([&] { status = Wait(*job, cancel); });
  return status;
}

std::shared_ptr<DiskRemover::Job> DiskRemover::Add(const ContentHash& tenant,
                                                   DiskStore::Deletion deletion) {
  auto job = std::make_shared<Job>();
  job->note = deletion.note;
  job->pages = std::move(deletion.pages);
  {
    std::lock_guard lock(mutex_);
    without_note_.push_back(job);
    absl::Cleanup undo = [this] { without_note_.pop_back(); };
    Jobs first;
    first.push_back(job);  // before the map has a place for it: none is ever empty
    const auto [place, is_new] = jobs_.try_emplace(tenant, std::move(first));
    if (!is_new) place->second.push_back(job);
    std::move(undo).Cancel();
  }
  changed_.notify_all();
  return job;
}

absl::Status DiskRemover::Wait(const Job& job, const CancelFlag& cancel) {
  std::unique_lock lock(mutex_);
  const auto limit =
      waiting_ < options_.most_waiting ? options_.most_wait : options_.most_wait / 50;
  const SteadyTime due = clock_.Now() + limit;
  ++waiting_;
  const auto hangs = [&] { return TimeOfCall() >= options_.most_wait; };
  while (!job.done && !cancel.cancelled() && clock_.Now() < due && !hangs()) {
    changed_.wait_for(lock, std::min<SteadyTime::duration>(kLookInterval, limit));
  }
  --waiting_;
  if (job.done) return job.status;
  if (cancel.cancelled()) return absl::CancelledError("the call was cancelled");
  return absl::UnavailableError(absl::StrCat("the disk is slow: ", job.pages.size() - job.removed,
                                             " pages of the document are still on it; the server "
                                             "no longer uses them and continues to delete them"));
}

SteadyTime::duration DiskRemover::TimeOfCall() const {
  return call_begun_.has_value() ? clock_.Now() - *call_begun_ : SteadyTime::duration(0);
}

template <typename Call>
void DiskRemover::CallDisk(std::unique_lock<std::mutex>& lock, const Call& call) {
  call_begun_ = clock_.Now();
  lock.unlock();
  call();
  lock.lock();
  call_begun_.reset();
}

void DiskRemover::Work(std::unique_lock<std::mutex>& lock, Job& job) {
  const size_t end = std::min(job.pages.size(), job.removed + kFilesInATurn);
  for (; job.removed < end && !stop_; ++job.removed) {
    absl::Status status;
    CallDisk(lock, [&] {
      status = Guarded([&] { return store_.RemoveForgotten(job.pages[job.removed]); },
                       [&] { return no_memory_; });
      if (absl::IsResourceExhausted(status)) store_.TurnOff(status);
    });
    if (job.status.ok()) job.status = std::move(status);
  }
}

void DiskRemover::RemoveLoop() {
  ContentHash last{};
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    // Writes the notes of all new jobs first, as the daemon may end before it removes their files.
    while (!without_note_.empty()) {
      const std::shared_ptr<Job> job = std::move(without_note_.front());
      without_note_.pop_front();
      CallDisk(lock, [&] { Note([&] { store_.LeaveNote(job->note); }); });
    }
    auto next = jobs_.upper_bound(last);
    if (next == jobs_.end()) next = jobs_.begin();
    last = next->first;
    const std::shared_ptr<Job> job = next->second.front();
    Work(lock, *job);
    if (job->removed < job->pages.size()) continue;
    next->second.pop_front();
    if (next->second.empty()) jobs_.erase(next);
    // If a file could not be removed, the note stays, and the next start tries again.
    if (job->status.ok()) CallDisk(lock, [&] { Note([&] { store_.TakeBackNote(job->note); }); });
    job->done = true;
    changed_.notify_all();
  }
}

void DiskRemover::WatchLoop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    clock_.WaitUntil(clock_.Now() + options_.most_call / 8, lock, changed_, [&] { return stop_; });
    if (TimeOfCall() < options_.most_call) continue;
    lock.unlock();
    const auto off = [&]() -> absl::Status {
      return absl::UnavailableError(
          absl::StrCat("the disk has not removed a page's file for more than ",
                       options_.most_call / milliseconds(1), " ms"));
    };
    store_.TurnOff(Guarded(off, [&] { return no_memory_; }));
    lock.lock();
  }
}

}  // namespace annulus
