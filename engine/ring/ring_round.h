#ifndef ANNULUS_ENGINE_RING_RING_ROUND_H_
#define ANNULUS_ENGINE_RING_RING_ROUND_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/ring/ring_link.h"

namespace annulus {

// The round that a rank is about to post: what each peer gets and gives. Not thread-safe.
class RingRound {
 public:
  explicit RingRound(RingLink& link) : link_(link) {}

  // Adds a message and an expectation of `bytes` long parts of one peer; either may be empty. Where
  // messages arrive as copies this one takes its place from the front of `slot`: RESOURCE_EXHAUSTED
  // if that is too small.
  absl::Status Add(int peer, uint64_t tag, std::vector<RingPart> parts, std::vector<size_t> bytes,
                   std::span<std::byte>& slot);

  // Posts what was added, and begins anew.
  absl::Status Post();

 private:
  RingLink& link_;
  std::vector<RingMessage> sent_;
  std::vector<RingExpectation> expected_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_ROUND_H_
