#ifndef ANNULUS_SERVER_PROCESS_PERIODIC_THREAD_H_
#define ANNULUS_SERVER_PROCESS_PERIODIC_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace annulus::server {

// Calls a function on a thread of its own: at once, and again `interval` after each call has ended,
// until destroyed.
class PeriodicThread {
 public:
  PeriodicThread(std::chrono::milliseconds interval, std::function<void()> task);
  ~PeriodicThread();  // waits for a running call
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

 private:
  void Loop(std::chrono::milliseconds interval, const std::function<void()>& task);

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;  // last member, because it uses all of the above
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_PROCESS_PERIODIC_THREAD_H_
