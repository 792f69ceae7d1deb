#ifndef ANNULUS_SERVER_PERIODIC_THREAD_H_
#define ANNULUS_SERVER_PERIODIC_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace annulus {

// Calls a function at once and then at fixed intervals, from a thread of its own, until destroyed.
class PeriodicThread {
 public:
  PeriodicThread(std::chrono::milliseconds interval, std::function<void()> task);
  ~PeriodicThread();  // waits for a call under way
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

 private:
  void Loop(std::chrono::milliseconds interval, const std::function<void()>& task);

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;  // stands last: it uses all of the above
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_PERIODIC_THREAD_H_
