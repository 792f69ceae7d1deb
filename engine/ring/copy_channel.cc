#include "engine/ring/copy_channel.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/memory/align.h"
#include "engine/ring/check_message.h"
#include "engine/ring/work_timer.h"
#include "kernels/base/status_macros.h"

namespace annulus {

class CopyRing::End final : public RingChannel {
 public:
  End(CopyRing* ring, int rank) : ring_(ring), rank_(rank), waits_(ring->device(rank)) {}

  int rank() const override { return rank_; }
  int size() const override { return ring_->mail_.ranks(); }
  bool copies() const override { return true; }

  absl::Status Post(Stream& stream, std::span<const RingMessage> sent,
                    std::span<const RingExpectation> expected, SteadyTime) override {
    ANNULUS_RETURN_IF_ERROR(ring_->mail_.aborted(rank_));
    ANNULUS_ASSIGN_OR_RETURN(const SharedEvent so_far, ring_->events_[rank_]->Take());
    ANNULUS_RETURN_IF_ERROR(stream.Record(*so_far));
    for (const RingExpectation& expectation : expected) {
      const int peer = expectation.peer;
      Lane& lane = ring_->lane(peer, rank_);
      std::lock_guard lock(lane.mutex);
      lane.expected.push_back({expectation, so_far});
      ANNULUS_RETURN_IF_ERROR(ring_->Match(peer, rank_, lane));
    }
    for (const RingMessage& message : sent) {
      const int peer = message.peer;
      Lane& lane = ring_->lane(rank_, peer);
      std::lock_guard lock(lane.mutex);
      lane.sent.push_back({message, so_far});
      ANNULUS_RETURN_IF_ERROR(ring_->Match(rank_, peer, lane));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<RingParts> Receive(Stream& stream, int peer, uint64_t tag,
                                    std::span<const size_t> part_bytes,
                                    SteadyTime deadline) override {
    ANNULUS_RETURN_IF_ERROR(ring_->mail_.Peek(rank_, peer, deadline).status());
    Letter letter = ring_->mail_.Pop(rank_, peer);
    ANNULUS_RETURN_IF_ERROR(letter.status);
    ANNULUS_RETURN_IF_ERROR(CheckMessage(rank_, peer, {tag, part_bytes}, letter.message));
    if (letter.arrived != nullptr) {
      ANNULUS_RETURN_IF_ERROR(waits_.Time(stream, [&] { return stream.Await(*letter.arrived); }));
    }
    return std::move(letter.message.parts);
  }

  absl::StatusOr<double> TakeStreamWaits() override { return waits_.Take(); }

  void Abort(const absl::Status& status) override { ring_->mail_.Abort(status); }

  void Forget() { waits_.Forget(); }

 private:
  CopyRing* ring_;
  int rank_;
  WorkTimer waits_;
};

CopyRing::CopyRing(Backend& backend, int ranks, LinkKind kind, const Clock& clock)
    : backend_(backend), kind_(kind), mail_(ranks, clock) {
  for (int rank = 0; rank < ranks; ++rank) {
    events_.push_back(std::make_shared<EventPool>(device(rank)));
    ends_.push_back(std::make_unique<End>(this, rank));
  }
}

// Links go first: what is on its way uses the events.
CopyRing::~CopyRing() { lanes_.clear(); }

absl::StatusOr<std::unique_ptr<CopyRing>> CopyRing::Create(Backend& backend, int ranks,
                                                           LinkKind kind, const Clock& clock) {
  std::unique_ptr<CopyRing> ring(new CopyRing(backend, ranks, kind, clock));
  ANNULUS_RETURN_IF_ERROR(ring->OpenLinks());
  return ring;
}

Backend& CopyRing::device(int rank) const {
  return backend_.OnDevice(rank % backend_.capabilities().devices);
}

absl::Status CopyRing::OpenLinks() {
  for (int from = 0; from < mail_.ranks(); ++from) {
    for (int to = 0; to < mail_.ranks(); ++to) {
      lanes_.push_back(std::make_unique<Lane>());
      if (&device(from) == &device(to)) continue;
      ANNULUS_ASSIGN_OR_RETURN(lanes_.back()->link, device(to).OpenLink(device(from), kind_));
    }
  }
  return absl::OkStatus();
}

RingChannel& CopyRing::channel(int rank) { return *ends_[rank]; }

std::string CopyRing::description() const {
  return kind_ == LinkKind::kPeer ? "copies between devices" : "copies through pinned host memory";
}

absl::Status CopyRing::Reset() {
  absl::Status status;
  for (const auto& lane : lanes_) {
    std::lock_guard lock(lane->mutex);
    lane->sent.clear();
    lane->expected.clear();
    if (lane->link != nullptr) status.Update(lane->link->Drain());
  }
  for (const auto& end : ends_) end->Forget();
  mail_.Reset();
  if (!status.ok()) mail_.Abort(status);
  return status;
}

absl::Status CopyRing::Match(int from, int to, Lane& lane) {
  while (!lane.sent.empty() && !lane.expected.empty()) {
    Letter letter = Send(from, to, lane, std::move(lane.sent.front()), lane.expected.front());
    lane.sent.pop_front();
    lane.expected.pop_front();
    ANNULUS_RETURN_IF_ERROR(mail_.Put(from, to, std::move(letter)));
  }
  return absl::OkStatus();
}

CopyRing::Letter CopyRing::Send(int from, int to, Lane& lane, Outgoing outgoing,
                                const Incoming& incoming) {
  const RingExpectation& expectation = incoming.expectation;
  Letter letter;
  letter.status =
      CheckMessage(to, from, {expectation.tag, expectation.part_bytes}, outgoing.message);
  if (letter.status.ok() && outgoing.message.host != (expectation.into == nullptr)) {
    letter.status = absl::InternalError(absl::StrCat(
        "message ", expectation.tag, " from rank ", from, " to rank ", to, " lies in memory of ",
        outgoing.message.host ? "the host" : "a device", ", which the receiver does not expect"));
  }
  if (letter.status.ok() && !outgoing.message.host && lane.link != nullptr) {
    letter.status = StartCopy(to, lane, outgoing, incoming, letter);
  } else if (!outgoing.message.host) {
    letter.arrived = outgoing.written;
  }
  letter.message = std::move(outgoing.message);
  if (letter.copied) letter.message.parts = letter.message.parts.CopiedTo(expectation.into);
  return letter;
}

absl::Status CopyRing::StartCopy(int to, Lane& lane, const Outgoing& outgoing,
                                 const Incoming& incoming, Letter& letter) {
  std::vector<DeviceCopy> copies;
  std::byte* at = incoming.expectation.into;
  const RingParts& parts = outgoing.message.parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const RingPart part = parts[i];
    // Pages that lie side by side travel as one.
    if (!copies.empty() && copies.back().to + copies.back().bytes == at &&
        copies.back().from + copies.back().bytes == part.data) {
      copies.back().bytes += part.bytes;
    } else {
      copies.push_back({at, part.data, part.bytes});
    }
    at += AlignUp(part.bytes);
  }
  ANNULUS_ASSIGN_OR_RETURN(letter.arrived, events_[to]->Take());
  const std::array<const Event*, 2> after = {outgoing.written.get(), incoming.unread.get()};
  ANNULUS_RETURN_IF_ERROR(lane.link->Copy(copies, after, *letter.arrived));
  letter.copied = true;
  return absl::OkStatus();
}

}  // namespace annulus
