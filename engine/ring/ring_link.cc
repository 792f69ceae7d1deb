#include "engine/ring/ring_link.h"

#include <utility>
#include <vector>

#include "engine/memory/align.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::Status RingLink::Post(std::span<const RingMessage> sent,
                            std::span<const RingExpectation> expected) {
  if (sent.empty() && expected.empty()) return absl::OkStatus();
  const SteadyTime start = Now();
  const absl::Status status = channel_.Post(stream_, sent, expected, start + timeout_);
  counters_.send_seconds += SecondsBetween(start, Now());
  return status;
}

absl::Status RingLink::CountStreamWaits() {
  ANNULUS_ASSIGN_OR_RETURN(const double seconds, channel_.TakeStreamWaits());
  counters_.wait_seconds += seconds;
  return absl::OkStatus();
}

absl::StatusOr<RingParts> RingLink::Receive(int peer, uint64_t tag,
                                            std::span<const size_t> part_bytes) {
  absl::StatusOr<RingParts> parts;
  Wait([&](SteadyTime deadline) {
    parts = channel_.Receive(stream_, peer, tag, part_bytes, deadline);
    return parts.status();
  }).IgnoreError();  // it is that of `parts`
  return parts;
}

absl::Status RingLink::Flush() {
  if (size() == 1) return absl::OkStatus();  // and no time is waited
  return Wait([&](SteadyTime deadline) { return channel_.Flush(deadline); });
}

absl::Status RingLink::Wait(absl::FunctionRef<absl::Status(SteadyTime deadline)> wait) {
  const Heartbeat::Waiting waiting(*heartbeat_);
  const SteadyTime start = Now();
  absl::Status status = wait(start + timeout_);
  while (absl::IsDeadlineExceeded(status)) {
    const SteadyTime quiet = heartbeat_->last() + timeout_;
    if (quiet <= Now()) break;
    status = wait(quiet);
  }
  counters_.wait_seconds += SecondsBetween(start, Now());
  return status;
}

absl::StatusOr<int64_t> RingLink::Exchange(const Round& round) {
  int64_t sent = 0;
  std::vector<RingMessage> messages;
  std::vector<RingExpectation> expected;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    std::vector<RingPart> parts;
    round.give(peer, parts);
    for (const RingPart& part : parts) sent += static_cast<int64_t>(part.bytes);
    if (!parts.empty()) messages.push_back({peer, round.tag, std::move(parts), true});
    RingExpectation wanted{peer, round.tag, {}, nullptr, true};
    round.expect(peer, wanted.part_bytes);
    if (wanted.part_bytes.empty()) continue;
    if (channel_.copies_host()) {
      size_t bytes = 0;
      for (const size_t part : wanted.part_bytes) bytes += AlignUp(part);
      ANNULUS_ASSIGN_OR_RETURN(wanted.into, round.place(bytes));
    }
    expected.push_back(std::move(wanted));
  }
  ANNULUS_RETURN_IF_ERROR(Post(messages, expected));
  for (const RingExpectation& wanted : expected) {
    ANNULUS_ASSIGN_OR_RETURN(const RingParts parts,
                             Receive(wanted.peer, wanted.tag, wanted.part_bytes));
    ANNULUS_RETURN_IF_ERROR(round.take(wanted.peer, parts));
  }
  return sent;
}

}  // namespace annulus
