#include "engine/ring/in_process_channel.h"

#include <utility>

#include "engine/ring/check_message.h"
#include "engine/ring/work_timer.h"
#include "kernels/base/status_macros.h"

namespace annulus {

class InProcessRing::End final : public RingChannel {
 public:
  End(InProcessRing* ring, Backend& device, int rank) : ring_(ring), rank_(rank), waits_(device) {}

  int rank() const override { return rank_; }
  int size() const override { return ring_->mail_.ranks(); }
  bool copies() const override { return false; }

  absl::Status Post(Stream& stream, std::span<const RingMessage> sent,
                    std::span<const RingExpectation>, SteadyTime) override {
    std::shared_ptr<Event> written;
    for (const RingMessage& message : sent) {
      const bool enqueued = ring_->events_ != nullptr && !message.host;
      if (enqueued && written == nullptr) {
        ANNULUS_ASSIGN_OR_RETURN(written, ring_->events_->Take());
        ANNULUS_RETURN_IF_ERROR(stream.Record(*written));
      }
      ANNULUS_RETURN_IF_ERROR(
          ring_->mail_.Put(rank_, message.peer, {message, enqueued ? written : nullptr}));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<RingParts> Receive(Stream& stream, int peer, uint64_t tag,
                                    std::span<const size_t> part_bytes,
                                    SteadyTime deadline) override {
    ANNULUS_RETURN_IF_ERROR(ring_->mail_.Peek(rank_, peer, deadline).status());
    Letter letter = ring_->mail_.Pop(rank_, peer);
    ANNULUS_RETURN_IF_ERROR(CheckMessage(rank_, peer, {tag, part_bytes}, letter.message));
    if (letter.written != nullptr) {
      ANNULUS_RETURN_IF_ERROR(waits_.Time(stream, [&] { return stream.Await(*letter.written); }));
    }
    return std::move(letter.message.parts);
  }

  absl::StatusOr<double> TakeStreamWaits() override { return waits_.Take(); }

  void Abort(const absl::Status& status) override { ring_->mail_.Abort(status); }

  void Forget() { waits_.Forget(); }

 private:
  InProcessRing* ring_;
  int rank_;
  WorkTimer waits_;
};

InProcessRing::InProcessRing(Backend& device, int ranks, const Clock& clock)
    : events_(device.capabilities().host_accessible ? nullptr
                                                    : std::make_shared<EventPool>(device)),
      mail_(ranks, clock) {
  for (int rank = 0; rank < ranks; ++rank) {
    ends_.push_back(std::make_unique<End>(this, device, rank));
  }
}

InProcessRing::~InProcessRing() = default;

RingChannel& InProcessRing::channel(int rank) { return *ends_[rank]; }

absl::Status InProcessRing::Reset() {
  for (const auto& end : ends_) end->Forget();
  mail_.Reset();
  return absl::OkStatus();
}

}  // namespace annulus
