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

#include "engine/base/work_meter.h"
#include "engine/tiers/disk_store.h"

namespace annulus {

// Removes the files of pages that a store has forgotten on a thread of its own, so that a caller
// waits for a disk only as long as it wants to. Tenants take turns. What waits to be removed counts
// towards the store's limit, which bounds it. Thread-safe.
class DiskRemover {
 public:
  struct Options {
    std::chrono::milliseconds most_wait{5'000};   // of a caller
    std::chrono::milliseconds most_call{30'000};  // a disk that takes longer turns the store off
    int most_waiting = 24;  // callers; others wait a fiftieth of most_wait: each keeps a thread
  };
  // `store` must outlive the remover.
  DiskRemover(DiskStore& store, const Options& options);
  // Waits for the call to the disk under way; what has not been removed stays.
  ~DiskRemover();
  DiskRemover(const DiskRemover&) = delete;
  DiskRemover& operator=(const DiskRemover&) = delete;

  // `deletion`: what DiskStore::ForgetDocument gave. OK once all files are gone. Else the removal
  // goes on: UNAVAILABLE if the disk failed or is slow, at once if it hangs already; CANCELLED.
  // RESOURCE_EXHAUSTED without memory: the files stay, and the store is off.
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
  // Some files of the job, with the lock held but for the calls to the disk.
  void Work(std::unique_lock<std::mutex>& lock, Job& job);
  // A call to the disk, without the lock, that the watch sees.
  template <typename Call>
  void CallDisk(std::unique_lock<std::mutex>& lock, const Call& call);
  void WatchLoop();
  // How long the call to the disk under way has taken. With the lock held.
  std::chrono::steady_clock::duration TimeOfCall() const;

  DiskStore& store_;
  const Options options_;
  const absl::Status no_memory_;  // made when there is some
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::map<ContentHash, Jobs> jobs_;  // by tenant; none is empty
  Jobs without_note_;                 // of them, those that have just come
  int waiting_ = 0;                   // callers
  std::optional<std::chrono::steady_clock::time_point> call_begun_;
  std::thread remover_;
  std::thread watch_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_DISK_REMOVER_H_
