#ifndef ANNULUS_ENGINE_SCHEDULER_COST_MODEL_H_
#define ANNULUS_ENGINE_SCHEDULER_COST_MODEL_H_

#include <cstdint>

#include "engine/api/ring.h"
#include "kernels/ops/attention.h"

namespace annulus {

// The attention of a layer: its query heads, and what a page holds of its keys and values.
struct AttentionGeometry {
  int heads = 1;
  KvPageShape page = {.page_tokens = 64, .kv_heads = 1, .k_dim = 64, .v_dim = 64};
  double query_bytes_per_element = 4;  // as messages carry queries

  // Of a row and a key that it attends.
  double pair_flops() const { return 2.0 * heads * (page.k_dim + page.v_dim); }
};

// `rows` new tokens of a sequence attend `cached` older tokens and each other, over a ring of
// `degree` ranks.
struct RingWork {
  int64_t rows = 1;
  int64_t cached = 0;
  int degree = 1;
  // The shares of the fullest rank, each in [1 / degree, 1]: of the rows, which it computes in
  // pass-KV; and of the keys, which in pass-Q it attends for the rows of all ranks.
  double row_share = 1;
  double key_share = 1;
};

// Work for pages placed by PlaceOnRing from position 0 on, each row on its page's rank.
RingWork StripedWork(int64_t rows, int64_t cached, int degree, int page_tokens, int shards);

// A rank's rates in calls with `rows` rows. Interpolates over the logarithm of rows between
// measured values; beyond them returns the nearest.
AttentionRate RateOf(double rows, const ExchangeRates& rates);

// Seconds until the last rank has attended in one layer, with one call for each rank that has keys.
// Both modes attend the same pairs in calls of the same size and differ in which rank does the
// work. The result is the larger of two times: that of the fullest rank if it computes alone, and
// that of all work spread evenly while all ranks compute. A few rows lie in a single page: then in
// pass-KV one rank attends everything, while in pass-Q every holder takes its part.
double AttentionSeconds(RingMode mode, const RingWork& work, const AttentionGeometry& geometry,
                        const ExchangeRates& rates);

// Seconds of exchange that one layer adds to AttentionSeconds.
//
// T: rows; P: cached tokens; H, G: query and key/value heads; d: k_dim = v_dim; e: bytes per
// element; k: degree. If messages travel over a link (Meta, arXiv 2411.01783, section 3), the
// result is the time of the bytes not hidden behind attention. pass-KV sends 2 (T + P) G d e bytes,
// hidden. pass-Q sends T H d e bytes, hidden, and returns T H (d + 1) 4 bytes of float32 states
// after the attention, not hidden. Each is multiplied by (k - 1) / k.
//
// If messages pass addresses within one address space, nothing is copied and both modes merge the
// same number of states. The remaining cost is k - 1 messages that list every page in pass-KV, and
// 2 (k - 1) short messages in pass-Q.
double ExchangeSeconds(RingMode mode, const RingWork& work, const AttentionGeometry& geometry,
                       const ExchangeRates& rates);

// The mode with the smaller sum of AttentionSeconds and ExchangeSeconds; pass-KV if equal.
RingMode ChooseRingMode(const RingWork& work, const AttentionGeometry& geometry,
                        const ExchangeRates& rates);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_COST_MODEL_H_
