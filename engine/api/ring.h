#ifndef ANNULUS_ENGINE_API_RING_H_
#define ANNULUS_ENGINE_API_RING_H_

// How the ranks of a ring exchange data, and what that costs.

#include <cstdint>
#include <vector>

namespace annulus {

// What the ring exchanges (Meta, arXiv 2411.01783). kPassKv: keys and values circulate. kPassQ:
// queries circulate and attention states return. kAuto: the scheduler's cost model chooses.
enum class RingMode : uint8_t { kAuto, kPassKv, kPassQ };

// Which ranks of a ring live in one process: `local` of them, from `first` on. The ring has `all`.
struct RankSpan {
  int first = 0;
  int local = 1;
  int all = 1;
};

// How ranks on different devices exchange data. kPeer: direct copies between device memories.
// kStaged: copies through pinned host memory. kNccl: NCCL. kAuto: the first of peer, nccl and
// staged that this machine supports. Ranks on one device pass addresses; for them only kAuto is
// allowed.
enum class RingTransport : uint8_t { kAuto, kPeer, kStaged, kNccl };

// How fast one rank computes attention, in FLOP/s, in calls with `rows` rows.
struct AttentionRate {
  int rows = 1;
  double flops = 50e9;        // while all ranks of its ring compute too
  double alone_flops = 50e9;  // while the others wait; higher if ranks share processors
  // Extra seconds that pass-Q takes over pass-KV per further rank when one rank has all rows,
  // beyond what the other rates predict. Negative if that rank gains little from the processors
  // that idle ranks leave it.
  double query_seconds = 0;
};

// The measured rates that decide between pass-KV and pass-Q.
struct ExchangeRates {
  // Ascending by rows; at least one entry.
  std::vector<AttentionRate> attention = std::vector<AttentionRate>(1);
  double call_keys = 0;                // fixed cost of a call on one rank's keys, expressed in keys
  double link_bytes_per_second = 5e9;  // 0: messages pass addresses, nothing is copied
  double message_seconds = 20e-6;      // from sending until the receiver continues
  double part_seconds = 0;             // extra for each further part (page) of a message
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_RING_H_
