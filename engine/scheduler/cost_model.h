#ifndef ANNULUS_ENGINE_SCHEDULER_COST_MODEL_H_
#define ANNULUS_ENGINE_SCHEDULER_COST_MODEL_H_

#include <cstdint>

#include "engine/api/ring.h"

namespace annulus {

// Per-layer attention geometry that the cost of an exchange depends on.
struct AttentionGeometry {
  int heads = 1;
  int kv_heads = 1;
  int head_dim = 64;
  int page_tokens = 64;
  double kv_bytes_per_element = 4;
  double query_bytes_per_element = 4;
};

// `rows` new tokens of a sequence that attend `cached` older ones over a ring of `degree` ranks.
struct RingWork {
  int64_t rows = 1;
  int64_t cached = 0;
  int degree = 1;
  // Of the fullest rank, in [1 / degree, 1]: its share of the rows, which it runs in pass-KV, and
  // its share of the keys, which it attends for all in pass-Q.
  double row_share = 1;
  double key_share = 1;
};

// Pages placed on the ring from position 0 by PlaceOnRing, rows where their pages are.
RingWork StripedWork(int64_t rows, int64_t cached, int degree, int page_tokens, int shards);

// FLOP/s of a rank in calls of `rows`: between two measured numbers of rows by the logarithm of
// rows, beyond all the nearest.
AttentionRate RateOf(double rows, const ExchangeRates& rates);

// Seconds of one layer until the last rank has attended: one call for each rank with keys. Both
// modes attend the same pairs in calls of the same rows; they differ in who does it. The fullest
// rank cannot be quicker than it is alone, and all together not quicker than when all are at work.
// Few rows lie in one page, so in pass-KV one rank attends everything, while in pass-Q every holder
// takes its part.
double AttentionSeconds(RingMode mode, const RingWork& work, const AttentionGeometry& geometry,
                        const ExchangeRates& rates);

// Seconds of exchange that one layer adds to that.
//
// Where messages travel over a link (Meta, arXiv 2411.01783, section 3) these are the bytes that
// stay exposed. pass-KV: 2 (T + P) G d e bytes, hidden behind attention. pass-Q: T H d e bytes,
// hidden, plus T H (d + 1) 4 bytes of float32 states that return after the attention, not hidden.
// Each times (k - 1) / k.
//
// Where they are handed over in one address space nothing moves and both modes merge the same
// number of states. What is left is k - 1 messages that list every page in pass-KV, and 2 (k - 1)
// short ones in pass-Q.
double ExchangeSeconds(RingMode mode, const RingWork& work, const AttentionGeometry& geometry,
                       const ExchangeRates& rates);

// The mode with less of both; pass-KV where they tie.
RingMode ChooseRingMode(const RingWork& work, const AttentionGeometry& geometry,
                        const ExchangeRates& rates);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_COST_MODEL_H_
