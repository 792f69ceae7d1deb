#include "engine/ring/ring_link.h"

#include <utility>

#include "engine/base/clock.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::Status RingLink::Send(int peer, uint64_t tag, std::vector<RingPart> parts) {
  if (parts.empty()) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(stream_.Synchronize());
  const SteadyTime start = std::chrono::steady_clock::now();
  const absl::Status status = channel_.Send(peer, tag, std::move(parts));
  counters_.send_seconds += SecondsBetween(start, std::chrono::steady_clock::now());
  return status;
}

absl::StatusOr<std::vector<RingPart>> RingLink::Receive(int peer, uint64_t tag,
                                                        std::span<const size_t> part_bytes) {
  const SteadyTime start = std::chrono::steady_clock::now();
  auto parts = channel_.Receive(peer, tag, part_bytes, start + timeout_);
  while (absl::IsDeadlineExceeded(parts.status())) {
    const SteadyTime quiet = heartbeat_->last() + timeout_;
    if (quiet <= std::chrono::steady_clock::now()) break;
    parts = channel_.Receive(peer, tag, part_bytes, quiet);
  }
  counters_.wait_seconds += SecondsBetween(start, std::chrono::steady_clock::now());
  return parts;
}

absl::StatusOr<int64_t> RingLink::Exchange(const Round& round) {
  int64_t sent = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    std::vector<RingPart> parts;
    round.give(peer, parts);
    for (const RingPart& part : parts) sent += static_cast<int64_t>(part.bytes);
    ANNULUS_RETURN_IF_ERROR(Send(peer, round.tag, std::move(parts)));
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    std::vector<size_t> bytes;
    round.expect(peer, bytes);
    if (bytes.empty()) continue;
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<RingPart> parts, Receive(peer, round.tag, bytes));
    ANNULUS_RETURN_IF_ERROR(round.take(peer, parts));
  }
  return sent;
}

}  // namespace annulus
