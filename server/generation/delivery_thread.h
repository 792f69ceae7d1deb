#ifndef ANNULUS_SERVER_GENERATION_DELIVERY_THREAD_H_
#define ANNULUS_SERVER_GENERATION_DELIVERY_THREAD_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace annulus::server {

// An object with events for its reader.
class Deliverable {
 public:
  virtual ~Deliverable() = default;
  virtual void Deliver() = 0;
};

// The thread that passes events from the engine to gRPC. Serialising and writing happen here, so
// that a step never waits for them. A deliverable must not post itself again before it was
// delivered, so the queue is never longer than the number of streams. Thread-safe.
class DeliveryThread {
 public:
  DeliveryThread();
  ~DeliveryThread();  // drops the queue, then joins the thread
  DeliveryThread(const DeliveryThread&) = delete;
  DeliveryThread& operator=(const DeliveryThread&) = delete;

  // Has the thread call deliverable->Deliver(). Never blocks.
  void Post(std::shared_ptr<Deliverable> deliverable);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Deliverable>> queue_;
  bool stopping_ = false;
  std::thread thread_;  // last member, because it uses all of the above
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_DELIVERY_THREAD_H_
