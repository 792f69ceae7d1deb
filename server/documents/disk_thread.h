#ifndef ANNULUS_SERVER_DOCUMENTS_DISK_THREAD_H_
#define ANNULUS_SERVER_DOCUMENTS_DISK_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "engine/api.h"

namespace annulus::server {

// Calls a disk on a thread of its own, one call after the other, so that a disk that hangs holds
// this thread and no caller. Thread-safe.
class DiskThread {
 public:
  // A call to the disk. It may run after its caller has given up, so it must own what it uses.
  using Call = std::function<absl::Status()>;

  // `most_call`: a call that takes longer counts as hanging.
  explicit DiskThread(std::chrono::milliseconds most_call);
  // Waits until all calls have been made.
  ~DiskThread();
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;

  // Makes the call after those before it, and returns its status. Other errors:
  // - UNAVAILABLE, with RetryInfo: a call hangs, this one or one before it.
  // - CANCELLED: `cancel` was set.
  // - RESOURCE_EXHAUSTED: the call ran out of memory.
  // A call that has begun by then runs to its end; one that has not never runs. Tells in `begun`
  // whether it has.
  absl::Status Run(Call call, const CancelFlag& cancel, bool* begun = nullptr);

  // Makes the call after those before it, without waiting. Its status is ignored.
  void Post(Call call);

 private:
  struct Job {
    Call call;
    bool done = false;
    absl::Status status{};
  };

  std::shared_ptr<Job> Add(Call call);
  absl::Status Wait(const std::shared_ptr<Job>& job, const CancelFlag& cancel, bool& begun);
  bool HangsLocked() const;
  void Loop();

  const std::chrono::milliseconds most_call_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::deque<std::shared_ptr<Job>> jobs_;  // those that have not begun
  std::optional<SteadyTime> begun_;        // since when a call is under way
  std::thread thread_;                     // last, because it uses all of the above
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DOCUMENTS_DISK_THREAD_H_
