#include "engine/measure_exchange.h"

#include <algorithm>
#include <vector>

#include "engine/ring_probe.h"
#include "engine/scheduler/cost_model.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int64_t kMostPageBytes = 32 << 20;
constexpr int32_t kMostTokens = 16384;
// Of one layer: long beside a message, and beside a thread that starts late.
constexpr double kEnoughSeconds = 1.5e-3;
constexpr int kRounds = 50;
constexpr int kManyParts = 1000;
constexpr size_t kLeastRepeats = 5;
constexpr size_t kMostRepeats = 21;

// The lower quartile of some runs, as whatever else the machine does only adds; the quickest would
// be the luckiest wake-up of a thread. Short ones are run more often.
template <class Measure>
absl::StatusOr<double> Typical(const Measure& measure) {
  std::vector<double> seconds;
  double spent = 0;
  while (seconds.size() < kLeastRepeats ||
         (seconds.size() < kMostRepeats && spent < kEnoughSeconds)) {
    ANNULUS_ASSIGN_OR_RETURN(seconds.emplace_back(), measure());
    spent += seconds.back();
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 4, seconds.end());
  return seconds[seconds.size() / 4];
}

// Typical seconds of a layer of some rows at three lengths of the past: none, a stripe (every rank
// holds a page of it), and many keys.
struct LayerTimes {
  int32_t many = 0;  // keys
  double first = 0;  // pass-KV without a past
  double kv_stripe = 0, kv_many = 0;
  double q_stripe = 0, q_many = 0;
};

// Rows of one page: pass-KV is then one rank at work, and pass-Q all of them, each with its part of
// the keys. There are more and more keys until one rank takes long enough or pages end.
absl::StatusOr<LayerTimes> TimeLayers(RingProbe& probe, const RingProbeOptions& options,
                                      int32_t rows) {
  const int32_t stripe = options.shape.page_tokens * options.ranks;
  const auto typical = [&](RingMode mode, int32_t cached) {
    return Typical([&] { return probe.Layer(mode, rows, cached); });
  };
  LayerTimes times;
  ANNULUS_ASSIGN_OR_RETURN(times.first, typical(RingMode::kPassKv, 0));
  ANNULUS_ASSIGN_OR_RETURN(times.kv_stripe, typical(RingMode::kPassKv, stripe));
  ANNULUS_ASSIGN_OR_RETURN(times.q_stripe, typical(RingMode::kPassQ, stripe));
  for (int32_t next = 2 * stripe; next + rows <= options.tokens; next *= 2) {
    times.many = next;
    ANNULUS_ASSIGN_OR_RETURN(const double seconds, probe.Layer(RingMode::kPassKv, rows, next));
    if (seconds > kEnoughSeconds) break;
  }
  ANNULUS_ASSIGN_OR_RETURN(times.kv_many, typical(RingMode::kPassKv, times.many));
  ANNULUS_ASSIGN_OR_RETURN(times.q_many, typical(RingMode::kPassQ, times.many));
  return times;
}

// From what more keys take, so that what every layer takes does not count. One rank alone is no
// slower than one of many, and many are no slower than one; noise is kept from saying otherwise.
AttentionRate FitRate(const LayerTimes& times, const RingProbeOptions& options, int32_t rows,
                      double pair_flops) {
  const double keys = times.many - options.shape.page_tokens * options.ranks;
  const double flops = pair_flops * rows * keys;
  const auto rate_of = [flops](double few, double many) {
    return flops / std::max(many - few, many / 4);
  };
  const double together = rate_of(times.q_stripe, times.q_many);
  AttentionRate rate;
  rate.rows = rows;
  rate.alone_flops = std::max(rate_of(times.kv_stripe, times.kv_many), together / options.ranks);
  rate.flops = std::max(together, rate.alone_flops) / options.ranks;
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
  options.tokens = std::max(options.rows * (2 * options.ranks + 1), fitting);
  ANNULUS_ASSIGN_OR_RETURN(const auto probe, RingProbe::Create(options, ops, backend));
  ExchangeRates rates;
  rates.link_bytes_per_second = 0;
  ANNULUS_ASSIGN_OR_RETURN(rates.message_seconds,
                           Typical([&] { return probe->Message(1, kRounds); }));
  ANNULUS_ASSIGN_OR_RETURN(const double many,
                           Typical([&] { return probe->Message(kManyParts, kRounds); }));
  rates.part_seconds = std::max(0.0, many - rates.message_seconds) / (kManyParts - 1);
  AttentionGeometry geometry;
  geometry.heads = setup.heads;
  geometry.kv_heads = setup.shape.kv_heads;
  geometry.head_dim = (setup.shape.k_dim + setup.shape.v_dim) / 2;
  geometry.page_tokens = setup.shape.page_tokens;
  const double pair_flops = 2.0 * setup.heads * (setup.shape.k_dim + setup.shape.v_dim);
  const int32_t stripe = setup.shape.page_tokens * setup.ranks;
  const double others = setup.ranks - 1;
  rates.attention.clear();
  std::vector<double> call_keys;
  LayerTimes one_row;
  for (int32_t rows = 1; rows <= options.rows; rows *= 8) {
    ANNULUS_ASSIGN_OR_RETURN(const LayerTimes times, TimeLayers(*probe, options, rows));
    const AttentionRate& rate =
        rates.attention.emplace_back(FitRate(times, options, rows, pair_flops));
    if (rows == 1) one_row = times;
    // What a stripe takes beside its keys are the calls and messages of the other ranks.
    const double calls = times.kv_stripe - times.first - others * rates.message_seconds;
    call_keys.push_back((calls * rate.alone_flops / (pair_flops * rows) - stripe) / others);
  }
  std::sort(call_keys.begin(), call_keys.end());
  rates.call_keys = std::max(0.0, call_keys[call_keys.size() / 2]);
  // Threads that share processors answer later than those of a ring that only sends.
  const RingWork work = StripedWork(1, stripe, setup.ranks, setup.shape.page_tokens);
  const double queries =
      one_row.q_stripe - AttentionSeconds(RingMode::kPassQ, work, geometry, rates);
  const double pages =
      one_row.kv_stripe - AttentionSeconds(RingMode::kPassKv, work, geometry, rates);
  rates.message_seconds = std::max(rates.message_seconds, (queries - pages) / others);
  return rates;
}

}  // namespace annulus
