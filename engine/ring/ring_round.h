#ifndef ANNULUS_ENGINE_RING_RING_ROUND_H_
#define ANNULUS_ENGINE_RING_RING_ROUND_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/ring/ring_link.h"

namespace annulus {

// Collects the messages of a round before they are posted. Keeps its memory from round to round.
// Not thread-safe.
class RingRound {
 public:
  // `link` must outlive this object.
  explicit RingRound(RingLink& link) : link_(link) {}

  // Drops what a failed layer has collected.
  void Clear();

  // Adds a message to `peer` and the expectation of a message with parts of `bytes` from it; either
  // may be empty. If the channel copies, takes the destination from the front of `slot`;
  // RESOURCE_EXHAUSTED if it is too small.
  absl::Status Add(int peer, uint64_t tag, RingParts parts, const std::vector<size_t>& bytes,
                   std::span<std::byte>& slot);

  // Posts the collected round and clears it.
  absl::Status Post();

 private:
  RingLink& link_;
  std::vector<RingMessage> sent_;
  std::vector<RingExpectation> expected_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_ROUND_H_
