#include "server/generation/delivery_thread.h"

#include <utility>

namespace annulus::server {

DeliveryThread::DeliveryThread() : thread_([this] { Loop(); }) {}

DeliveryThread::~DeliveryThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void DeliveryThread::Post(std::shared_ptr<Deliverable> deliverable) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(deliverable));
  }
  wake_.notify_one();
}

void DeliveryThread::Loop() {
  for (;;) {
    std::shared_ptr<Deliverable> next;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next->Deliver();
  }
}

}  // namespace annulus::server
