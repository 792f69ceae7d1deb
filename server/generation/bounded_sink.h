#ifndef ANNULUS_SERVER_GENERATION_BOUNDED_SINK_H_
#define ANNULUS_SERVER_GENERATION_BOUNDED_SINK_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "engine/api.h"
#include "server/generation/delivery_thread.h"

namespace annulus::server {

struct QueuedEvent {
  int position = 0;
};
using SinkEvent = std::variant<QueuedEvent, PromptProgress, Delta, Completion>;

// Approximate memory of a waiting delta, in bytes.
size_t DeltaBytes(const Delta& delta);
// The same of evidence.
size_t EvidenceBytes(const std::vector<SentenceEvidence>& sentences);

// The consumer of a sink's events.
class SinkReader {
 public:
  virtual ~SinkReader() = default;
  // Called on the delivery thread when events are waiting. The reader must call Pop until it
  // returns nullopt, now or later.
  virtual void OnReady() = 0;
};

// HasRoom is false once the waiting deltas reach either limit.
struct SinkLimits {
  size_t max_bytes = size_t{256} << 10;  // of DeltaBytes
  size_t max_deltas = 256;
};

// A queue of one request's events between the engine and a reader. The engine shares ownership, so
// either side may end first: after Detach the reader is never called again. Thread-safe.
//
// - Events come out in this order: queue position, progress, deltas, completion. Of positions and
//   of progress only the newest waits. One that arrives after a later kind of event is dropped.
// - At the limits HasRoom becomes false. Deltas are still accepted, since a step may be running.
// - The first completion ends the sink, whoever sent it; later events are dropped. If it is a
//   failure, the waiting events are dropped too.
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

  // Drops the waiting events. Once this returns, OnReady is not running and will not be called
  // again. Waits for a running OnReady, so never call it from there.
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

#endif  // ANNULUS_SERVER_GENERATION_BOUNDED_SINK_H_
