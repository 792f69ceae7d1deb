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

// A rank's rates in calls with `rows` > 0 rows. Between measured values, interpolates over the
// logarithm of rows; beyond them, returns the nearest.
AttentionRate RateOf(double rows, const ExchangeRates& rates);

// Seconds until the last rank has attended in one layer, with one call for each rank that has keys.
// Both modes attend the same pairs, in calls of the same size, and differ in which rank does the
// work. The result is the larger of two times: what the fullest rank takes for its part if it
// computes alone, and what all ranks take for all work if it is spread evenly. For example, if all
// rows are in one page, one rank attends everything in pass-KV, while in pass-Q each rank attends
// the keys it holds.
double AttentionSeconds(RingMode mode, const RingWork& work, const AttentionGeometry& geometry,
                        const ExchangeRates& rates);

// Seconds of exchange that one layer adds to AttentionSeconds. 0 for a degree of 1. The sum of:
//
// - The time of bytes on the link, as far as attention does not hide it (Meta, arXiv 2411.01783,
//   section 3). T: rows; P: cached tokens; H, G: query and key/value heads; d: k_dim = v_dim; e:
//   bytes per element; k: degree. pass-KV sends 2 (T + P) G d e bytes, hidden. pass-Q sends T H d e
//   bytes, hidden, and returns T H (d + 1) 4 bytes of float32 states, not hidden. Each is
//   multiplied by (k - 1) / k. 0 if messages pass addresses.
// - The time of messages: k - 1 in pass-KV, with part_seconds for each page they list; 2 (k - 1) in
//   pass-Q.
// - In pass-Q, (k - 1) query_seconds (AttentionRate), scaled from 0, if all ranks have equally many
//   rows, to 1, if one rank has all rows.
double ExchangeSeconds(RingMode mode, const RingWork& work, const AttentionGeometry& geometry,
                       const ExchangeRates& rates);

// The mode with the smaller sum of AttentionSeconds and ExchangeSeconds; pass-KV if equal.
RingMode ChooseRingMode(const RingWork& work, const AttentionGeometry& geometry,
                        const ExchangeRates& rates);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_COST_MODEL_H_
