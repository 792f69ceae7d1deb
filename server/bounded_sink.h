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

namespace annulus {

struct QueuedEvent {
  int position = 0;
};
using SinkEvent = std::variant<QueuedEvent, PromptProgress, Delta, Completion>;

// Memory that a delta takes while it waits, roughly.
size_t DeltaBytes(const Delta& delta);

// Whoever takes a sink's events.
class SinkReader {
 public:
  virtual ~SinkReader() = default;
  // Events wait; Pop until there are none, now or later. Called by the delivery thread.
  virtual void OnReady() = 0;
};

struct SinkLimits {
  size_t max_bytes = size_t{256} << 10;
  size_t max_deltas = 256;
};

// One request's results between the engine and its reader. The engine shares ownership, so either
// side may end first: after Detach, events are dropped and the reader is never called again.
//
// Events come out in the order queued, progress, delta, completion; of queued and progress only the
// newest is kept, and neither comes after what follows it. The limits are where HasRoom turns
// false: the few deltas of steps already under way still fit. The first completion ends the sink,
// whoever sent it; later events are dropped. Thread-safe.
class BoundedSink final : public TokenSink,
                          public Deliverable,
                          public std::enable_shared_from_this<BoundedSink> {
 public:
  // `delivery` and `reader` must outlive the time until Detach.
  BoundedSink(SinkLimits limits, DeliveryThread& delivery, SinkReader& reader)
      : limits_(limits), delivery_(&delivery), reader_(&reader) {}

  // For the engine, and for whoever ends a request in its place.
  void OnQueued(int position) override;
  void OnProgress(const PromptProgress& progress) override;
  void OnDelta(Delta delta) override;
  void OnDone(Completion completion) override;
  bool HasRoom() const override;

  // For the reader: the next event, if there is one.
  std::optional<SinkEvent> Pop();

  // Has OnReady called once more, behind others that wait for the delivery thread.
  void ComeAgain();

  // Drops everything. On return no OnReady runs, and none will.
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
  bool posted_ = false;  // waits in the delivery queue
  std::optional<QueuedEvent> queued_;
  std::optional<PromptProgress> progress_;
  std::deque<Delta> deltas_;
  size_t delta_bytes_ = 0;
  std::optional<Completion> completion_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_BOUNDED_SINK_H_
