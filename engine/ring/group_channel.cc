#include "engine/ring/group_channel.h"

#include <deque>
#include <thread>
#include <utility>

#include "engine/memory/align.h"
#include "engine/ring/check_message.h"
#include "kernels/base/device_error.h"
#include "kernels/base/status_macros.h"

namespace annulus {

static_assert(kPartAlignment == kMemoryAlignment, "parts of a message lie as RingExpectation says");

class GroupRing::End final : public RingChannel {
 public:
  End(GroupRing* ring, int rank)
      : ring_(ring),
        rank_(rank),
        events_(std::make_shared<EventPool>(ring->backend_.OnDevice(rank))),
        awaited_(static_cast<size_t>(ring->mail_.ranks())) {}

  int rank() const override { return rank_; }
  int size() const override { return ring_->mail_.ranks(); }
  bool copies() const override { return true; }
  size_t send_bytes() const override { return SendBytes(size()); }
  void UseSendArea(std::span<std::byte> area) override { area_ = area; }

  absl::Status Post(Stream& stream, std::span<const RingMessage> sent,
                    std::span<const RingExpectation> expected, SteadyTime deadline) override {
    std::vector<Communicator::Message> sends;
    std::vector<Communicator::Message> receives;
    for (const RingMessage& message : sent) {
      if (!message.host) sends.push_back(PartsOf(message));
      ANNULUS_RETURN_IF_ERROR(ring_->mail_.Put(rank_, message.peer, message));
    }
    ANNULUS_RETURN_IF_ERROR(ring_->mail_.aborted(rank_));
    for (const RingExpectation& expectation : expected) {
      if (!expectation.host) receives.push_back(PlacesOf(expectation));
    }
    if (sends.empty() && receives.empty()) return absl::OkStatus();
    ANNULUS_ASSIGN_OR_RETURN(const std::shared_ptr<Event> so_far, events_->Take());
    ANNULUS_ASSIGN_OR_RETURN(const std::shared_ptr<Event> done, events_->Take());
    ANNULUS_RETURN_IF_ERROR(stream.Record(*so_far));
    ANNULUS_RETURN_IF_ERROR(
        Reason(member().Exchange(sends, receives, area_, *so_far, *done, OfMachine(deadline))));
    for (const RingExpectation& expectation : expected) {
      if (expectation.host) continue;
      awaited_[expectation.peer].push_back({expectation.into, done});
    }
    return absl::OkStatus();
  }

  absl::StatusOr<RingParts> Receive(Stream& stream, int peer, uint64_t tag,
                                    std::span<const size_t> part_bytes,
                                    SteadyTime deadline) override {
    ANNULUS_ASSIGN_OR_RETURN(const RingMessage message, ring_->mail_.Peek(rank_, peer, deadline));
    ANNULUS_RETURN_IF_ERROR(CheckMessage(rank_, peer, {tag, part_bytes}, message));
    if (message.host) return ring_->mail_.Pop(rank_, peer).parts;
    std::deque<Awaited>& awaited = awaited_[peer];
    if (awaited.empty()) {
      return absl::InternalError(absl::StrCat("rank ", rank_, " did not expect message ", tag,
                                              " of rank ", peer, " in memory of its device"));
    }
    ANNULUS_RETURN_IF_ERROR(WaitForGroup(peer, *awaited.front().done, deadline));
    ANNULUS_RETURN_IF_ERROR(stream.Await(*awaited.front().done));
    RingParts parts = ring_->mail_.Pop(rank_, peer).parts.CopiedTo(awaited.front().into);
    awaited.pop_front();
    return parts;
  }

  absl::StatusOr<double> TakeStreamWaits() override { return 0.0; }

  void Abort(const absl::Status& status) override {
    ring_->mail_.Abort(status);
    for (const auto& member : ring_->members_) member->Abort();
  }

  void Forget() {
    for (auto& awaited : awaited_) awaited.clear();
  }

 private:
  struct Awaited {
    std::byte* into = nullptr;
    std::shared_ptr<Event> done;
  };

  static Communicator::Message PartsOf(const RingMessage& message) {
    Communicator::Message sent{message.peer, {}};
    for (size_t i = 0; i < message.parts.size(); ++i) {
      const RingPart part = message.parts[i];
      // Messages have one type for both directions; sent parts are only read.
      sent.parts.push_back({const_cast<std::byte*>(part.data), part.bytes});
    }
    return sent;
  }

  static Communicator::Message PlacesOf(const RingExpectation& expectation) {
    Communicator::Message received{expectation.peer, {}};
    std::byte* at = expectation.into;
    for (const size_t bytes : expectation.part_bytes) {
      received.parts.push_back({at, bytes});
      at += AlignUp(bytes);
    }
    return received;
  }

  Communicator& member() { return *ring_->members_[rank_]; }

  // The library uses the machine's clock, even if the ring uses another one.
  Communicator::Deadline OfMachine(SteadyTime deadline) const {
    return Clock::Real().Now() + (deadline - ring_->clock_.Now());
  }

  // A group that was ended by an abort says so; the abort's own reason says more.
  absl::Status Reason(const absl::Status& status) const {
    if (!absl::IsAborted(status)) return status;
    const absl::Status reason = ring_->mail_.aborted(rank_);
    return reason.ok() ? status : reason;
  }

  absl::Status WaitForGroup(int peer, const Event& done, SteadyTime deadline) {
    // Short compared with a message, long enough to yield the CPU.
    constexpr std::chrono::microseconds kPoll{20};
    while (true) {
      ANNULUS_RETURN_IF_ERROR(ring_->mail_.aborted(rank_));
      const absl::StatusOr<bool> ended = member().Ended(done);
      if (!ended.ok()) {
        return WithPrefix(absl::StrCat("rank ", rank_, ", waiting for rank ", peer, ": "),
                          Reason(ended.status()));
      }
      if (*ended) return absl::OkStatus();
      if (ring_->clock_.Now() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("rank ", rank_, " waited too long for data from rank ", peer));
      }
      std::this_thread::sleep_for(kPoll);
    }
  }

  GroupRing* ring_;
  int rank_;
  std::span<std::byte> area_;  // see UseSendArea
  std::shared_ptr<EventPool> events_;
  std::vector<std::deque<Awaited>> awaited_;  // [peer] in the order of its messages
};

GroupRing::GroupRing(Backend& backend, int ranks, std::chrono::milliseconds timeout,
                     const Clock& clock)
    : backend_(backend), clock_(clock), timeout_(timeout), mail_(ranks, clock) {
  for (int rank = 0; rank < ranks; ++rank) ends_.push_back(std::make_unique<End>(this, rank));
}

// Members are destroyed first: transfers in progress use the events.
GroupRing::~GroupRing() { members_.clear(); }

absl::StatusOr<std::unique_ptr<GroupRing>> GroupRing::Create(Backend& backend, int ranks,
                                                             std::chrono::milliseconds timeout,
                                                             const Clock& clock) {
  if (ranks > backend.capabilities().devices) {
    return absl::FailedPreconditionError(absl::StrCat(
        "NCCL needs a device for each of ", ranks, " ranks, and there are ",
        backend.capabilities().devices, "; lower --ranks, or set --ring-transport auto"));
  }
  std::unique_ptr<GroupRing> ring(new GroupRing(backend, ranks, timeout, clock));
  ANNULUS_RETURN_IF_ERROR(ring->Reset());
  return ring;
}

RingChannel& GroupRing::channel(int rank) { return *ends_[rank]; }

absl::Status GroupRing::Reset() {
  for (const auto& end : ends_) end->Forget();
  members_.clear();
  auto members = backend_.OpenGroup(mail_.ranks(), timeout_);
  mail_.Reset();
  if (!members.ok()) {
    mail_.Abort(members.status());
    return members.status();
  }
  members_ = *std::move(members);
  return absl::OkStatus();
}

}  // namespace annulus
