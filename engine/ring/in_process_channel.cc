#include "engine/ring/in_process_channel.h"

#include <utility>

#include "kernels/base/status_macros.h"

namespace annulus {

class InProcessRing::End final : public MailboxEnd {
 public:
  End(InProcessRing* ring, Backend& device, int rank)
      : MailboxEnd(ring->mail_, device, rank), ring_(ring) {}

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
      ANNULUS_RETURN_IF_ERROR(ring_->mail_.Put(
          rank(), message.peer, {message, enqueued ? written : nullptr, absl::OkStatus()}));
    }
    return absl::OkStatus();
  }

 private:
  InProcessRing* ring_;
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
