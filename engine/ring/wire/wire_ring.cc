#include "engine/ring/wire/wire_ring.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {

class WireRing::End final : public RingChannel {
 public:
  End(WireRing* ring, int rank) : ring_(ring), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return ring_->setup_.ranks; }
  bool copies() const override { return true; }
  bool copies_host() const override { return true; }

  absl::Status Post(Stream&, std::span<const RingMessage> sent,
                    std::span<const RingExpectation> expected, SteadyTime) override {
    ANNULUS_RETURN_IF_ERROR(ring_->unformed_);
    Wire& wire = ring_->wire(rank_);
    for (const RingExpectation& each : expected) {
      if (each.into == nullptr) return NoPlace(each.peer, each.tag);
      ANNULUS_RETURN_IF_ERROR(wire.Expect(each.peer, each.tag, each.part_bytes, each.into));
    }
    for (const RingMessage& each : sent) {
      ANNULUS_RETURN_IF_ERROR(wire.Send(each.peer, each.tag, each.parts));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<RingParts> Receive(Stream&, int peer, uint64_t tag,
                                    std::span<const size_t> part_bytes,
                                    SteadyTime deadline) override {
    ANNULUS_RETURN_IF_ERROR(ring_->unformed_);
    return ring_->wire(rank_).Receive(peer, tag, part_bytes, deadline);
  }

  absl::Status Flush(SteadyTime deadline) override {
    ANNULUS_RETURN_IF_ERROR(ring_->unformed_);
    return ring_->wire(rank_).Flush(deadline);
  }

  // Streams wait for nothing: the host does.
  absl::StatusOr<double> TakeStreamWaits() override { return 0.0; }

  void Abort(const absl::Status& status) override { ring_->Abort(status); }

 private:
  absl::Status NoPlace(int peer, uint64_t tag) const {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank_, " expects message ", tag,
                                                   " of rank ", peer, " without a place for it"));
  }

  WireRing* const ring_;
  const int rank_;
};

WireRing::WireRing(WireRingSetup setup, const Clock& clock)
    : setup_(std::move(setup)),
      clock_(clock),
      no_memory_(NoMemoryError()),
      epoch_(setup_.first_epoch - 1),
      wires_(setup_.ranks),
      ends_(setup_.ranks) {
  for (const int rank : setup_.local) ends_[rank] = std::make_unique<End>(this, rank);
}

WireRing::~WireRing() = default;

absl::StatusOr<std::unique_ptr<WireRing>> WireRing::Create(WireRingSetup setup,
                                                           const Clock& clock) {
  std::unique_ptr<WireRing> ring(new WireRing(std::move(setup), clock));
  ANNULUS_RETURN_IF_ERROR(ring->Reset());
  return ring;
}

RingChannel& WireRing::channel(int rank) {
  ANNULUS_CHECK(ends_.at(rank) != nullptr) << "rank " << rank << " is of another process";
  return *ends_[rank];
}

Wire& WireRing::wire(int rank) {
  ANNULUS_CHECK(wires_.at(rank) != nullptr) << "rank " << rank << " is of another process";
  return *wires_[rank];
}

absl::Status WireRing::Reset() {
  for (auto& wire : wires_) wire.reset();
  const auto form = [this]() -> absl::Status {
    try {
      return Form();
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot start a thread for the wires of a ring: ", error.what()));
    }
  };
  unformed_ = Guarded(form, [this] { return no_memory_; });
  return unformed_;
}

absl::Status WireRing::Form() {
  const uint64_t epoch = epoch_ + 1;
  std::vector<std::string> own;
  for (const int rank : setup_.local) {
    ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<Carrier> carrier, setup_.open());
    wires_[rank] = std::make_unique<Wire>(std::move(carrier), rank, setup_.ranks, epoch, clock_);
    own.push_back(wires_[rank]->address());
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           setup_.exchange(epoch, std::move(own)));
  epoch_ = epoch;
  for (const int rank : setup_.local) ANNULUS_RETURN_IF_ERROR(wires_[rank]->Connect(all));
  return absl::OkStatus();
}

void WireRing::Abort(const absl::Status& status) {
  for (const auto& wire : wires_) {
    if (wire != nullptr) wire->Abort(status);
  }
}

}  // namespace annulus
