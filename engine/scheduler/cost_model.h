#ifndef ANNULUS_ENGINE_SCHEDULER_COST_MODEL_H_
#define ANNULUS_ENGINE_SCHEDULER_COST_MODEL_H_

#include <cstdint>

#include "engine/api.h"

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

// Seconds of exchange that one layer adds to a rank's attention when `rows` new tokens of a
// sequence attend `cached` older ones over a ring of `degree` ranks.
//
// Where messages travel over a link (Meta, arXiv 2411.01783, section 3) these are the bytes that
// stay exposed. pass-KV: 2 (T + P) G d e bytes, hidden behind attention. pass-Q: T H d e bytes,
// hidden, plus T H (d + 1) 4 bytes of float32 states that return after the attention, not hidden.
// Each times (k - 1) / k.
//
// Where they are handed over in one address space nothing moves, and both modes attend the same
// pairs and merge the same number of states. What is left is k - 1 messages that list every page in
// pass-KV, and 2 (k - 1) short ones in pass-Q.
double ExchangeSeconds(RingMode mode, int64_t rows, int64_t cached, int degree,
                       const AttentionGeometry& geometry, const ExchangeRates& rates);

// The mode with less of it; pass-KV where they tie.
RingMode ChooseRingMode(int64_t rows, int64_t cached, int degree, const AttentionGeometry& geometry,
                        const ExchangeRates& rates);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_COST_MODEL_H_
