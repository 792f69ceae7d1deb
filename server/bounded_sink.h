#ifndef ANNULUS_SERVER_BOUNDED_SINK_H_
#define ANNULUS_SERVER_BOUNDED_SINK_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>

#include "engine/api.h"
#include "server/delivery_thread.h"

namespace annulus::server {

struct QueuedEvent {
  int position = 0;
};
using SinkEvent = std::variant<QueuedEvent, PromptProgress, Delta, Completion>;

// Approximate memory of a waiting delta, in bytes.
size_t DeltaBytes(const Delta& delta);

// The consumer of a sink's events.
class SinkReader {
 public:
  virtual ~SinkReader() = default;
  // Called on the delivery thread when events are waiting. The reader must call Pop until it
  // returns nullopt, now or later.
  virtual void OnReady() = 0;
};

struct SinkLimits {
  size_t max_bytes = size_t{256} << 10;
  size_t max_deltas = 256;
};

// A queue of one request's events between the engine and a reader. The engine shares ownership, so
// either side may end first: after Detach, events are dropped and the reader is never called again.
//
// Events come out in the order queued, progress, delta, completion. Of queued and progress, only
// the newest is kept, and it is dropped once a later kind of event has come. At the limits HasRoom
// becomes false, but a few more deltas of steps already running are still accepted. The first
// completion ends the sink, whoever sent it; later events are dropped. Thread-safe.
class BoundedSink final : public TokenSink,
                          public Deliverable,
                          public std::enable_shared_from_this<BoundedSink> {
 public:
  // `delivery` and `reader` must live until Detach.
  BoundedSink(SinkLimits limits, DeliveryThread& delivery, SinkReader& reader)
      : limits_(limits), delivery_(&delivery), reader_(&reader) {}

  // For the engine, and for code that ends a request in the engine's place.
  void OnQueued(int position) override;
  void OnProgress(const PromptProgress& progress) override;
  void OnDelta(Delta delta) override;
  void OnDone(Completion completion) override;
  bool HasRoom() const override;

  // For the reader: takes the next event; nullopt if there is none.
  std::optional<SinkEvent> Pop();

  // Schedules another call of OnReady, after the others that wait for the delivery thread.
  void ComeAgain();

  // Drops all events. Once this returns, OnReady is not running and will not be called again.
  void Detach();

  void Deliver() override;

 private:
  enum class Stage : uint8_t { kQueued, kPrompt, kAnswer, kDone };

  void DropLocked();
  void PostLocked();

  const SinkLimits limits_;
  DeliveryThread* const delivery_;

  std::mutex reader_mutex_;  // held while the reader is called; taken before mutex_
  SinkReader* reader_;       // guarded by both mutexes

  mutable std::mutex mutex_;
  Stage stage_ = Stage::kQueued;
  bool posted_ = false;  // in the delivery thread's queue
  std::optional<QueuedEvent> queued_;
  std::optional<PromptProgress> progress_;
  std::deque<Delta> deltas_;
  size_t delta_bytes_ = 0;
  std::optional<Completion> completion_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_BOUNDED_SINK_H_
