#ifndef ANNULUS_ENGINE_TIERS_DISK_REMOVER_H_
#define ANNULUS_ENGINE_TIERS_DISK_REMOVER_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/work_meter.h"
#include "engine/tiers/disk_store.h"

namespace annulus {

// Removes, on a thread of its own, the files of pages that a store has forgotten, so that no caller
// waits long for a slow disk. Tenants take turns. Files that are still to be removed count towards
// the store's limit, so their number is bounded. Thread-safe.
class DiskRemover {
 public:
  struct Options {
    std::chrono::milliseconds most_wait{5'000};   // of a caller
    std::chrono::milliseconds most_call{30'000};  // a longer call to the disk turns the store off
    // How many callers may wait that long at a time; others wait a fiftieth of most_wait, because
    // each occupies a thread.
    int most_waiting = 24;
  };
  // `store` and `clock`, by which waits and calls are timed, must outlive the remover.
  DiskRemover(DiskStore& store, const Options& options, const Clock& clock = Clock::Real());
  // Waits for the call to the disk under way. Files that are not removed yet stay.
  ~DiskRemover();
  DiskRemover(const DiskRemover&) = delete;
  DiskRemover& operator=(const DiskRemover&) = delete;

  // `deletion`: the result of DiskStore::ForgetDocument. OK once all files are gone. Errors:
  // - UNAVAILABLE: the disk failed or is slow; at once if it already hangs. The removal goes on.
  // - CANCELLED. The removal goes on.
  // - RESOURCE_EXHAUSTED: out of memory. The files stay, and the store is off.
  absl::Status Remove(const ContentHash& tenant, DiskStore::Deletion deletion,
                      const CancelFlag& cancel);

 private:
  struct Job {
    DeletionNote note;
    std::vector<EntryName> pages;
    size_t removed = 0;
    bool done = false;
    absl::Status status;
  };
  using Jobs = std::deque<std::shared_ptr<Job>>;

  std::shared_ptr<Job> Add(const ContentHash& tenant, DiskStore::Deletion deletion);
  absl::Status Wait(const Job& job, const CancelFlag& cancel);
  void RemoveLoop();
  // Removes some files of the job. Called with the lock held; releases it for calls to the disk.
  void Work(std::unique_lock<std::mutex>& lock, Job& job);
  // Calls the disk without the lock; WatchLoop sees how long the call takes.
  template <typename Call>
  void CallDisk(std::unique_lock<std::mutex>& lock, const Call& call);
  void WatchLoop();
  // How long the call to the disk under way has taken. With the lock held.
  SteadyTime::duration TimeOfCall() const;

  DiskStore& store_;
  const Options options_;
  const Clock& clock_;
  const absl::Status no_memory_;  // made in advance, as making it allocates
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::map<ContentHash, Jobs> jobs_;  // by tenant; no list is empty
  Jobs without_note_;                 // those of jobs_ for which no note is written yet
  int waiting_ = 0;                   // callers
  std::optional<SteadyTime> call_begun_;
  std::thread remover_;
  std::thread watch_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_DISK_REMOVER_H_
