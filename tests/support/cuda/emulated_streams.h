#ifndef ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_STREAMS_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_STREAMS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/cuda/common/launch_log.h"

namespace annulus::cuda {

// Queues of work as CUDA orders it. Eager streams do everything at once. Late ones do nothing until
// somebody waits for them, and then only as much as was waited for: who forgets to wait reads
// memory that nobody has written yet. One thread at a time runs anything that is late.
class EmulatedStreams {
 public:
  // False: it cannot be done yet, and is tried again later.
  using Work = std::function<bool()>;
  // What of a kernel may happen before the kernel in front of it. Null: nothing.
  using Early = std::function<void()>;

  static EmulatedStreams& Get();

  // Whether streams are late. Only while none holds work.
  void set_late(bool late) { late_ = late; }
  bool late() const { return late_; }

  StreamHandle Open(int ordinal);
  void Close(StreamHandle stream);
  int DeviceOf(StreamHandle stream) const;

  void Enqueue(StreamHandle stream, Work work);
  // A late stream runs `early` right before the kernel in front, so that what `early` reads too
  // soon is what that kernel has not written yet; before nothing else, and not if there is none.
  void EnqueueKernel(StreamHandle stream, Work work, Early early);
  // Whether the stream is empty, once it has gone as far as it can.
  bool Run(StreamHandle stream);
  // Drops all that streams have to do, and lets devices that hang go on, but not the calls that
  // wait for them: what the end of a process does for the next.
  void Forget();
  // Runs all streams of a device as far as they go, as freeing its memory does.
  void RunDevice(int ordinal);

  EventHandle OpenEvent(int ordinal);
  static void CloseEvent(EventHandle event);
  void Record(StreamHandle stream, EventHandle event);
  void Await(StreamHandle stream, EventHandle event);
  // Whether the event has been reached, once its stream has gone as far as it can.
  bool Reached(EventHandle event);
  static std::chrono::steady_clock::time_point TimeOf(EventHandle event);

 private:
  struct Piece {
    Work run;
    bool is_kernel = false;
    Early early = nullptr;
  };
  struct Stream {
    int ordinal = 0;
    std::deque<Piece> work;
    uint64_t done = 0;      // pieces of work
    uint64_t enqueued = 0;  // of all, those done included
    bool running = false;
  };
  struct EmulatedEvent {
    int ordinal = 0;
    std::shared_ptr<Stream> stream;  // null: never recorded
    uint64_t mark = 0;
    std::shared_ptr<std::chrono::steady_clock::time_point> time;
  };

  void Add(StreamHandle stream, Piece piece);
  static void RunEarly(Stream& stream);
  static bool RunTo(Stream& stream, uint64_t mark);
  static std::shared_ptr<Stream>& Of(StreamHandle handle) {
    return *static_cast<std::shared_ptr<Stream>*>(handle->native);
  }
  // For work that may not overtake launches which the stream holds back.
  static std::shared_ptr<Stream>& Idle(StreamHandle handle) {
    return *static_cast<std::shared_ptr<Stream>*>(NativeOf(handle));
  }

  std::recursive_mutex mutex_;
  std::vector<std::weak_ptr<Stream>> all_;
  std::set<StreamHandle> open_;  // those that are left open because their device hangs, too
  bool late_ = false;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_EMULATED_STREAMS_H_
