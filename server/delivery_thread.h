#ifndef ANNULUS_SERVER_DELIVERY_THREAD_H_
#define ANNULUS_SERVER_DELIVERY_THREAD_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace annulus {

// Something with news for its reader.
class Deliverable {
 public:
  virtual ~Deliverable() = default;
  virtual void Deliver() = 0;
};

// Carries events from the engine's thread to gRPC: serialising and writing happen here, so that a
// step never waits for them. Each deliverable posts itself at most once before it is delivered,
// which bounds the queue by the number of streams. Thread-safe.
class DeliveryThread {
 public:
  DeliveryThread();
  ~DeliveryThread();  // drops what waits, then joins
  DeliveryThread(const DeliveryThread&) = delete;
  DeliveryThread& operator=(const DeliveryThread&) = delete;

  // Never blocks. Deliver() follows on the thread.
  void Post(std::shared_ptr<Deliverable> deliverable);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Deliverable>> queue_;
  bool stopping_ = false;
  std::thread thread_;  // stands last: it uses all of the above
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_DELIVERY_THREAD_H_
