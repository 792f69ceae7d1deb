#include "engine/measure_exchange.h"

#include <algorithm>
#include <limits>

#include "engine/ring_probe.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int64_t kMostPageBytes = 32 << 20;
constexpr int32_t kMostTokens = 4096;
// Of one layer: long beside a message, and beside a thread that starts late.
constexpr double kEnoughSeconds = 2e-3;
constexpr int kRounds = 50;
constexpr int kManyParts = 1000;
constexpr int kRepeats = 5;

// The quickest of some runs, as whatever else the machine does only adds.
template <class Measure>
absl::StatusOr<double> Quickest(const Measure& measure) {
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    ANNULUS_ASSIGN_OR_RETURN(const double seconds, measure());
    best = std::min(best, seconds);
  }
  return best;
}

// Rows of one page against more and more keys, until one rank alone takes long enough or pages end.
// pass-KV is then one rank at work, and pass-Q all of them, each with its part of the keys.
absl::StatusOr<AttentionRate> RateOfRows(RingProbe& probe, const RingProbeOptions& options,
                                         int32_t rows, double message_seconds) {
  const int32_t stripe = options.shape.page_tokens * options.ranks;
  const auto layer = [&](RingMode mode, int32_t cached) {
    return [&probe, mode, rows, cached] { return probe.Layer(mode, rows, cached); };
  };
  int32_t cached = 0;
  for (int32_t next = stripe; next + rows <= options.tokens; next *= 2) {
    cached = next;
    ANNULUS_ASSIGN_OR_RETURN(const double seconds, probe.Layer(RingMode::kPassKv, rows, cached));
    if (seconds > kEnoughSeconds) break;
  }
  ANNULUS_ASSIGN_OR_RETURN(const double alone, Quickest(layer(RingMode::kPassKv, cached)));
  ANNULUS_ASSIGN_OR_RETURN(const double together, Quickest(layer(RingMode::kPassQ, cached)));
  const double pairs = static_cast<double>(rows) * cached + static_cast<double>(rows) * rows / 2;
  const double flops = 2.0 * options.heads * (options.shape.k_dim + options.shape.v_dim) * pairs;
  // The model counts messages apart from attention.
  const double messages = (options.ranks - 1) * message_seconds;
  const double alone_seconds = std::max(alone - messages, alone / 2);
  const double together_seconds = std::max(together - 2 * messages, together / 2);
  AttentionRate rate;
  rate.rows = rows;
  rate.alone_flops = flops / alone_seconds;
  rate.flops = flops / together_seconds / options.ranks;
  return rate;
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
  options.rows = setup.shape.page_tokens;
  const auto fitting =
      static_cast<int32_t>(std::min<int64_t>(kMostTokens, kMostPageBytes / token_bytes));
  options.tokens = std::max(options.rows * (options.ranks + 1), fitting);
  ANNULUS_ASSIGN_OR_RETURN(const auto probe, RingProbe::Create(options, ops, backend));
  ExchangeRates rates;
  rates.link_bytes_per_second = 0;
  ANNULUS_ASSIGN_OR_RETURN(rates.message_seconds,
                           Quickest([&] { return probe->Message(1, kRounds); }));
  ANNULUS_ASSIGN_OR_RETURN(const double many,
                           Quickest([&] { return probe->Message(kManyParts, kRounds); }));
  rates.part_seconds = std::max(0.0, many - rates.message_seconds) / (kManyParts - 1);
  rates.attention.clear();
  for (int32_t rows = 1; rows <= options.rows; rows *= 4) {
    ANNULUS_ASSIGN_OR_RETURN(rates.attention.emplace_back(),
                             RateOfRows(*probe, options, rows, rates.message_seconds));
  }
  return rates;
}

}  // namespace annulus
