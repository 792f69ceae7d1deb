#include "engine/measure_exchange.h"

#include <algorithm>

#include "engine/ring_probe.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int64_t kMostPageBytes = 32 << 20;
constexpr int32_t kMostTokens = 4096;
constexpr double kEnoughSeconds =
    0.02;  // of one layer: then a clock tick or a late thread is small
constexpr int kRounds = 50;
constexpr int kManyParts = 1000;
constexpr int kRepeats = 3;

// Attention FLOP/s of one rank: a page of rows on each rank against more and more keys, until a
// layer takes long enough or pages end.
absl::StatusOr<double> AttentionRate(RingProbe& probe, const RingProbeOptions& options) {
  double rate = 0;
  for (int32_t cached = 0; cached + options.rows <= options.tokens;
       cached = 2 * cached + options.rows) {
    ANNULUS_ASSIGN_OR_RETURN(const double seconds,
                             probe.Layer(RingMode::kPassKv, options.rows, cached));
    const double rows = options.rows;
    const double pairs = rows * cached + rows * rows / 2;
    const double flops =
        2.0 * options.heads * (options.shape.k_dim + options.shape.v_dim) * pairs / options.ranks;
    rate = flops / seconds;
    if (seconds > kEnoughSeconds) break;
  }
  return rate;
}

// The quickest of some runs: whatever else the machine does only adds.
absl::StatusOr<double> MessageSeconds(RingProbe& probe, int parts) {
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    ANNULUS_ASSIGN_OR_RETURN(const double seconds, probe.Message(parts, kRounds));
    if (repeat == 0 || seconds < best) best = seconds;
  }
  return best;
}

}  // namespace

absl::StatusOr<ExchangeRates> MeasureExchange(const ExchangeSetup& setup, const OpTable& ops,
                                              Backend& backend) {
  const int64_t token_bytes =
      static_cast<int64_t>(ops.kv_page_bytes(setup.shape)) / setup.shape.page_tokens;
  RingProbeOptions options;
  options.ranks = setup.ranks;
  options.threads = setup.threads;
  options.shape = setup.shape;
  options.heads = setup.heads;
  options.rows = setup.shape.page_tokens * setup.ranks;
  const auto fitting =
      static_cast<int32_t>(std::min<int64_t>(kMostTokens, kMostPageBytes / token_bytes));
  options.tokens = std::max(options.rows, fitting);
  ANNULUS_ASSIGN_OR_RETURN(const auto probe, RingProbe::Create(options, ops, backend));
  ExchangeRates rates;
  rates.link_bytes_per_second = 0;
  ANNULUS_ASSIGN_OR_RETURN(rates.flops, AttentionRate(*probe, options));
  ANNULUS_ASSIGN_OR_RETURN(rates.message_seconds, MessageSeconds(*probe, 1));
  ANNULUS_ASSIGN_OR_RETURN(const double many, MessageSeconds(*probe, kManyParts));
  rates.part_seconds = std::max(0.0, many - rates.message_seconds) / (kManyParts - 1);
  return rates;
}

}  // namespace annulus
