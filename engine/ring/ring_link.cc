#include "engine/ring/ring_link.h"

#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"

namespace annulus {

absl::Status RingLink::Post(std::vector<RingMessage> sent, std::vector<RingExpectation> expected) {
  std::erase_if(sent, [](const RingMessage& message) { return message.parts.empty(); });
  std::erase_if(expected, [](const RingExpectation& wanted) { return wanted.part_bytes.empty(); });
  if (sent.empty() && expected.empty()) return absl::OkStatus();
  const SteadyTime start = Now();
  const absl::Status status =
      channel_.Post(stream_, std::move(sent), std::move(expected), start + timeout_);
  counters_.send_seconds += SecondsBetween(start, Now());
  return status;
}

absl::Status RingLink::CountStreamWaits() {
  ANNULUS_ASSIGN_OR_RETURN(const double seconds, channel_.TakeStreamWaits());
  counters_.wait_seconds += seconds;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RingPart>> RingLink::Receive(int peer, uint64_t tag,
                                                        std::span<const size_t> part_bytes) {
  const SteadyTime start = Now();
  auto parts = channel_.Receive(stream_, peer, tag, part_bytes, start + timeout_);
  while (absl::IsDeadlineExceeded(parts.status())) {
    const SteadyTime quiet = heartbeat_->last() + timeout_;
    if (quiet <= Now()) break;
    parts = channel_.Receive(stream_, peer, tag, part_bytes, quiet);
  }
  counters_.wait_seconds += SecondsBetween(start, Now());
  return parts;
}

absl::StatusOr<int64_t> RingLink::Exchange(const Round& round) {
  int64_t sent = 0;
  std::vector<RingMessage> messages;
  std::vector<RingExpectation> expected;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    RingMessage& message = messages.emplace_back(RingMessage{peer, round.tag, {}, true});
    round.give(peer, message.parts);
    for (const RingPart& part : message.parts) sent += static_cast<int64_t>(part.bytes);
    round.expect(peer, expected.emplace_back(RingExpectation{peer, round.tag, {}}).part_bytes);
  }
  ANNULUS_RETURN_IF_ERROR(Post(std::move(messages), expected));
  for (const RingExpectation& wanted : expected) {
    if (wanted.part_bytes.empty()) continue;
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<RingPart> parts,
                             Receive(wanted.peer, wanted.tag, wanted.part_bytes));
    ANNULUS_RETURN_IF_ERROR(round.take(wanted.peer, parts));
  }
  return sent;
}

}  // namespace annulus
