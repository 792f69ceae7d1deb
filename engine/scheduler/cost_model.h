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
  double kv_bytes_per_element = 4;
  double query_bytes_per_element = 4;
};

// Rates of one rank: attention FLOP/s, bytes/s of its link, and seconds that a message costs before
// its first byte.
struct ExchangeRates {
  double flops = 50e9;
  double link_bytes_per_second = 5e9;
  double message_seconds = 20e-6;
};

// Seconds of exchange that stay exposed in one layer when `rows` new tokens of a sequence attend
// `cached` older ones over a ring of `degree` ranks (Meta, arXiv 2411.01783, section 3).
// pass-KV: 2 (T + P) G d e bytes, hidden behind attention. pass-Q: T H d e bytes, hidden, plus
// T H (d + 1) 4 bytes of float32 states that return after the attention, not hidden. Each times
// (k - 1) / k.
double ExposedSeconds(RingMode mode, int64_t rows, int64_t cached, int degree,
                      const AttentionGeometry& geometry, const ExchangeRates& rates);

// The mode with less exposed time; pass-KV where they tie.
RingMode ChooseRingMode(int64_t rows, int64_t cached, int degree, const AttentionGeometry& geometry,
                        const ExchangeRates& rates);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_COST_MODEL_H_
