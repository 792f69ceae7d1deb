#ifndef ANNULUS_ENGINE_WORKERS_WORKER_SHELVES_H_
#define ANNULUS_ENGINE_WORKERS_WORKER_SHELVES_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runner/rank_set.h"
#include "engine/tiers/local_shelves.h"
#include "engine/workers/control_messages.h"

namespace annulus {

// The shelves beside the ranks at `ranks`, of `span`; `slots` >= 1. Errors of LocalShelves::Create.
absl::StatusOr<std::unique_ptr<LocalShelves>> ShelvesOf(const RankSet& ranks, const RankSpan& span,
                                                        int32_t slots);

// Copies pages for a coordinator, on a thread of its own, in the order in which it asked: steps do
// not wait for copies, nor copies for steps. Thread-safe.
class WorkerShelves {
 public:
  // A coordinator has three threads that copy, and one that compares, for which it may have stopped
  // waiting; they wait for each answer.
  static constexpr size_t kMostCopies = 8;

  // `say` sends a message to the coordinator. If it throws, for want of memory, it is called again.
  WorkerShelves(std::unique_ptr<LocalShelves> shelves,
                std::function<void(const wire::FromWorker&)> say);
  // Ends the copy under way, and drops the others.
  ~WorkerShelves();
  WorkerShelves(const WorkerShelves&) = delete;
  WorkerShelves& operator=(const WorkerShelves&) = delete;

  // Never blocks. INVALID_ARGUMENT: there are no such pages or slot, or more than kMostCopies wait.
  absl::Status Take(const wire::CopyPage& message);

  int64_t resident_bytes(int32_t rank) const { return shelves_->resident_bytes(rank); }

 private:
  struct Waiting {
    uint64_t ticket = 0;
    PageCopy copy;
  };

  void Loop();
  // What PageCopied::same says, or why the page could not be copied. Never throws.
  absl::StatusOr<bool> Copy(const PageCopy& copy) const;
  // Throws if memory runs out; nothing was said then.
  void Say(uint64_t ticket, const absl::StatusOr<bool>& same) const;

  const std::unique_ptr<LocalShelves> shelves_;
  const std::function<void(const wire::FromWorker&)> say_;
  std::mutex mutex_;  // guards what follows, up to thread_
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_WORKER_SHELVES_H_
