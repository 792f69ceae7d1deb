#include "engine/ring/in_process_channel.h"

#include <utility>

#include "engine/ring/check_message.h"
#include "kernels/base/status_macros.h"

namespace annulus {

class InProcessRing::End final : public RingChannel {
 public:
  End(InProcessRing* ring, int rank) : ring_(ring), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return ring_->mail_.ranks(); }
  bool copies() const override { return false; }

  absl::Status Post(Stream&, std::vector<RingMessage> sent, std::vector<RingExpectation>,
                    SteadyTime) override {
    for (RingMessage& message : sent) {
      const int peer = message.peer;
      ANNULUS_RETURN_IF_ERROR(ring_->mail_.Put(rank_, peer, std::move(message)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<RingPart>> Receive(Stream&, int peer, uint64_t tag,
                                                std::span<const size_t> part_bytes,
                                                SteadyTime deadline) override {
    ANNULUS_RETURN_IF_ERROR(ring_->mail_.Peek(rank_, peer, deadline).status());
    RingMessage message = ring_->mail_.Pop(rank_, peer);
    ANNULUS_RETURN_IF_ERROR(CheckMessage(rank_, peer, {tag, part_bytes}, message));
    return std::move(message.parts);
  }

  absl::StatusOr<double> TakeStreamWaits() override { return 0.0; }

  void Abort(const absl::Status& status) override { ring_->mail_.Abort(status); }

 private:
  InProcessRing* ring_;
  int rank_;
};

InProcessRing::InProcessRing(int ranks) : mail_(ranks) {
  for (int rank = 0; rank < ranks; ++rank) ends_.push_back(std::make_unique<End>(this, rank));
}

InProcessRing::~InProcessRing() = default;

RingChannel& InProcessRing::channel(int rank) { return *ends_[rank]; }

absl::Status InProcessRing::Reset() {
  mail_.Reset();
  return absl::OkStatus();
}

}  // namespace annulus
