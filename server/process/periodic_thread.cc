#include "server/process/periodic_thread.h"

#include <utility>

namespace annulus::server {

PeriodicThread::PeriodicThread(std::chrono::milliseconds interval, std::function<void()> task)
    : thread_([this, interval, task = std::move(task)] { Loop(interval, task); }) {}

PeriodicThread::~PeriodicThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void PeriodicThread::Loop(std::chrono::milliseconds interval, const std::function<void()>& task) {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    task();
    lock.lock();
    wake_.wait_for(lock, interval, [&] { return stopping_; });
  }
}

}  // namespace annulus::server
