#ifndef ANNULUS_ENGINE_TIERS_DISK_REMOVER_H_
#define ANNULUS_ENGINE_TIERS_DISK_REMOVER_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/tiers/disk_store.h"

namespace annulus {

// Removes files of a store on a thread of its own, so that a caller waits for a disk only as long
// as it wants to. Thread-safe.
class DiskRemover {
 public:
  // `store` must outlive the remover.
  explicit DiskRemover(DiskStore& store);
  // Waits for the removal under way; those behind it are dropped.
  ~DiskRemover();
  DiskRemover(const DiskRemover&) = delete;
  DiskRemover& operator=(const DiskRemover&) = delete;

  // OK once all are gone. UNAVAILABLE: the disk failed, or needs longer than `limit`; then the
  // removal goes on.
  absl::Status Remove(std::vector<std::string> names, std::chrono::milliseconds limit);

 private:
  struct Job {
    std::vector<std::string> names;
    bool done = false;
    absl::Status status;
  };
  void Loop();

  DiskStore& store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_DISK_REMOVER_H_
