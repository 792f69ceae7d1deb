#ifndef ANNULUS_ENGINE_API_RING_H_
#define ANNULUS_ENGINE_API_RING_H_

// How the ranks of a ring exchange, and what that costs.

#include <cstdint>
#include <vector>

namespace annulus {

// How the ring exchanges data (Meta, arXiv 2411.01783): keys and values circulate, or queries
// circulate and states return. Automatic lets the scheduler's cost model choose.
enum class RingMode : uint8_t { kAuto, kPassKv, kPassQ };

// How ranks on several devices exchange: copies from memory to memory, copies through pinned memory
// of the host, or NCCL. Automatic takes the first of peer, nccl and staged that this machine has.
// Ranks of one device hand addresses over, and only automatic fits them.
enum class RingTransport : uint8_t { kAuto, kPeer, kStaged, kNccl };

// How fast one rank attends, in FLOP/s, when a call has so many rows.
struct AttentionRate {
  int rows = 1;
  double flops = 50e9;        // while all ranks of its ring do the same
  double alone_flops = 50e9;  // while the others wait; higher where ranks share processors
  // What pass-Q takes more than pass-KV besides where one rank has all rows, for each other rank;
  // less than 0 where that one gains little from the processors that the others leave it.
  double query_seconds = 0;
};

// What the choice between pass-KV and pass-Q rests on.
struct ExchangeRates {
  // By ascending rows, at least one.
  std::vector<AttentionRate> attention = std::vector<AttentionRate>(1);
  double call_keys = 0;  // each call on one rank's keys takes as long as so many keys more
  double link_bytes_per_second = 5e9;  // 0: messages are handed over where they lie, none is copied
  double message_seconds = 20e-6;      // from a send until the receiver goes on
  double part_seconds = 0;             // more for each further part (a page) of a message
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_RING_H_
