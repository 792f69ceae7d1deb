#ifndef ANNULUS_SERVER_WORK_POOL_H_
#define ANNULUS_SERVER_WORK_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace annulus {

// A few threads for what takes longer than a gRPC callback may: parsing and tokenizing long texts.
// gRPC's own threads are shared by all calls and must stay free. Thread-safe.
class WorkPool {
 public:
  // At most `max_waiting` jobs wait; `threads` >= 1.
  WorkPool(int threads, size_t max_waiting);
  ~WorkPool() { Stop(); }
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // False, without running the job, when too many wait.
  [[nodiscard]] bool TryRun(std::function<void()> job);

  // Runs what waits, then joins. Jobs that come later are refused.
  void Stop();

 private:
  void Loop();

  const size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_WORK_POOL_H_
