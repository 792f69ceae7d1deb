#include "engine/ring/copy_channel.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/memory/align.h"
#include "engine/ring/check_message.h"
#include "kernels/base/status_macros.h"

namespace annulus {

class CopyRing::End final : public MailboxEnd {
 public:
  End(CopyRing* ring, int rank) : MailboxEnd(ring->mail_, ring->device(rank), rank), ring_(ring) {}

  bool copies() const override { return true; }

  absl::Status Post(Stream& stream, std::span<const RingMessage> sent,
                    std::span<const RingExpectation> expected, SteadyTime) override {
    ANNULUS_RETURN_IF_ERROR(ring_->mail_.aborted(rank()));
    ANNULUS_ASSIGN_OR_RETURN(const SharedEvent so_far, ring_->events_[rank()]->Take());
    ANNULUS_RETURN_IF_ERROR(stream.Record(*so_far));
    for (const RingExpectation& expectation : expected) {
      const int peer = expectation.peer;
      Lane& lane = ring_->lane(peer, rank());
      std::lock_guard lock(lane.mutex);
      lane.expected.push_back({expectation, so_far});
      ANNULUS_RETURN_IF_ERROR(ring_->Match(peer, rank(), lane));
    }
    for (const RingMessage& message : sent) {
      const int peer = message.peer;
      Lane& lane = ring_->lane(rank(), peer);
      std::lock_guard lock(lane.mutex);
      lane.sent.push_back({message, so_far});
      ANNULUS_RETURN_IF_ERROR(ring_->Match(rank(), peer, lane));
    }
    return absl::OkStatus();
  }

 private:
  CopyRing* ring_;
};

CopyRing::CopyRing(Backend& backend, int ranks, LinkKind kind, const Clock& clock)
    : backend_(backend), kind_(kind), mail_(ranks, clock) {
  for (int rank = 0; rank < ranks; ++rank) {
    events_.push_back(std::make_shared<EventPool>(device(rank)));
    ends_.push_back(std::make_unique<End>(this, rank));
  }
}

// Links are destroyed first: transfers in progress use the events.
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
    RingLetter letter = Send(from, to, lane, std::move(lane.sent.front()), lane.expected.front());
    lane.sent.pop_front();
    lane.expected.pop_front();
    ANNULUS_RETURN_IF_ERROR(mail_.Put(from, to, std::move(letter)));
  }
  return absl::OkStatus();
}

RingLetter CopyRing::Send(int from, int to, Lane& lane, Outgoing outgoing,
                          const Incoming& incoming) {
  const RingExpectation& expectation = incoming.expectation;
  RingLetter letter;
  letter.status =
      CheckMessage(to, from, {expectation.tag, expectation.part_bytes}, outgoing.message);
  if (letter.status.ok() && outgoing.message.host != expectation.host) {
    letter.status = absl::InternalError(absl::StrCat(
        "message ", expectation.tag, " from rank ", from, " to rank ", to, " lies in memory of ",
        outgoing.message.host ? "the host" : "a device", ", which the receiver does not expect"));
  }
  letter.message = outgoing.message;
  if (outgoing.message.host) return letter;
  letter.arrived = outgoing.written;
  if (!letter.status.ok() || lane.link == nullptr) return letter;
  letter.arrived = nullptr;
  letter.status = StartCopy(to, lane, outgoing, incoming, letter.arrived);
  if (letter.status.ok()) letter.message.parts = outgoing.message.parts.CopiedTo(expectation.into);
  return letter;
}

absl::Status CopyRing::StartCopy(int to, Lane& lane, const Outgoing& outgoing,
                                 const Incoming& incoming, SharedEvent& arrived) {
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
  ANNULUS_ASSIGN_OR_RETURN(arrived, events_[to]->Take());
  const std::array<const Event*, 2> after = {outgoing.written.get(), incoming.unread.get()};
  return lane.link->Copy(copies, after, *arrived);
}

}  // namespace annulus
