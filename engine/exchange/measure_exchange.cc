#include "engine/exchange/measure_exchange.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "engine/base/clock.h"
#include "engine/exchange/ring_probe.h"
#include "engine/scheduler/cost_model.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int64_t kMostPageBytes = 32 << 20;
constexpr int32_t kMostTokens = 16384;
// Seconds of one layer: long compared with a message, and with the delay of a thread that starts
// late.
constexpr double kEnoughSeconds = 3e-3;
constexpr int kRounds = 50;
constexpr int kManyParts = 1000;
// What all runs of one measure take, unless the fewest take longer.
constexpr double kMeasureSeconds = 10e-3;
constexpr size_t kLeastRepeats = 5;
constexpr size_t kMostRepeats = 41;
// Of fewer rows than these each is the faster the more there are: they read the same keys.
constexpr int32_t kEnoughRows = 16;

using Measure = std::function<absl::StatusOr<double>()>;

// Takes the lower quartile of several runs of each measure: other work on the machine only adds
// time, but the quickest run may owe that to a lucky wake-up of a thread. The measures run in
// turns, so that a slow moment affects all of them; short ones run more often.
absl::StatusOr<std::vector<double>> Typical(const std::vector<Measure>& measures) {
  std::vector<std::vector<double>> seconds(measures.size());
  const SteadyTime start = std::chrono::steady_clock::now();
  const auto spent = [start] { return SecondsBetween(start, std::chrono::steady_clock::now()); };
  while (seconds[0].size() < kLeastRepeats ||
         (seconds[0].size() < kMostRepeats && spent() < kMeasureSeconds * measures.size())) {
    for (size_t i = 0; i < measures.size(); ++i) {
      ANNULUS_ASSIGN_OR_RETURN(seconds[i].emplace_back(), measures[i]());
    }
  }
  std::vector<double> typical;
  for (std::vector<double>& runs : seconds) {
    std::nth_element(runs.begin(), runs.begin() + runs.size() / 4, runs.end());
    typical.push_back(runs[runs.size() / 4]);
  }
  return typical;
}

// Typical seconds of a layer of some rows after three lengths of cached keys: none, a stripe (every
// rank holds a page of it), and many keys.
struct LayerTimes {
  int32_t many = 0;  // keys
  double first = 0;  // pass-KV without a past
  double kv_stripe = 0, kv_many = 0;
  double q_stripe = 0, q_many = 0;
};

// The fewest positions in which every rank has its share of pages: one where the ring divides the
// shards.
int32_t StripeTokens(int ranks, int page_tokens) {
  const int shards = ShardsFor(ranks);
  return page_tokens * (shards % ranks == 0 ? ranks : shards);
}

// Times rows of one page: in pass-KV one rank then works, in pass-Q all of them, each with its part
// of the keys. The number of keys grows until one rank takes long enough or pages run out.
absl::StatusOr<LayerTimes> TimeLayers(RingProbe& probe, const RingProbeOptions& options,
                                      int32_t rows) {
  const int32_t stripe = StripeTokens(options.ranks, options.attention.page.page_tokens);
  const auto layer = [&](RingMode mode, int32_t cached) -> Measure {
    return [&probe, mode, rows, cached] { return probe.Layer(mode, rows, cached); };
  };
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<double> few,
                           Typical({layer(RingMode::kPassKv, 0), layer(RingMode::kPassKv, stripe),
                                    layer(RingMode::kPassQ, stripe)}));
  int32_t most = stripe;
  for (int32_t next = 2 * stripe; next + rows <= options.tokens; next *= 2) {
    most = next;
    ANNULUS_ASSIGN_OR_RETURN(const double seconds, probe.Layer(RingMode::kPassKv, rows, next));
    if (seconds > kEnoughSeconds) break;
  }
  ANNULUS_ASSIGN_OR_RETURN(
      const std::vector<double> many,
      Typical({layer(RingMode::kPassKv, most), layer(RingMode::kPassQ, most)}));
  return LayerTimes{most, few[0], few[1], many[0], few[2], many[1]};
}

// Computes rates from the time of further keys, so that fixed costs of a layer do not count. One
// rank alone is no slower than one of many, and many together are no slower than one; results that
// noise turned the other way are corrected.
AttentionRate FitRate(const LayerTimes& times, const RingProbeOptions& options, int32_t rows,
                      double pair_flops) {
  const double keys = times.many - StripeTokens(options.ranks, options.attention.page.page_tokens);
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

RingProbeOptions ProbeOptionsOf(const ExchangeSetup& setup, const OpTable& ops) {
  const KvPageShape& page = setup.attention.page;
  const int64_t token_bytes = static_cast<int64_t>(ops.kv_page_bytes(page)) / page.page_tokens;
  RingProbeOptions options;
  options.ranks = setup.ranks;
  options.threads = setup.threads;
  options.attention = setup.attention;
  options.rows = page.page_tokens;
  options.transport = setup.transport;
  const auto fitting =
      static_cast<int32_t>(std::min<int64_t>(kMostTokens, kMostPageBytes / token_bytes));
  options.tokens = std::max(2 * StripeTokens(options.ranks, options.rows) + options.rows, fitting);
  return options;
}

// Sets rates.attention, without query_seconds; returns the times of each.
absl::StatusOr<std::vector<LayerTimes>> TimeAttention(RingProbe& probe,
                                                      const RingProbeOptions& options,
                                                      ExchangeRates& rates) {
  rates.attention.clear();
  std::vector<LayerTimes> layers;
  for (int32_t rows = 1; rows <= options.rows; rows *= 4) {
    ANNULUS_ASSIGN_OR_RETURN(const LayerTimes times, TimeLayers(probe, options, rows));
    rates.attention.push_back(FitRate(times, options, rows, options.attention.pair_flops()));
    layers.push_back(times);
    // Further rows tell little more, and of large pages would take a start many seconds.
    if (rows >= kEnoughRows && times.kv_stripe > kEnoughSeconds) break;
  }
  return layers;
}

}  // namespace

absl::StatusOr<ExchangeRates> MeasureExchange(const ExchangeSetup& setup, const OpTable& ops,
                                              Backend& backend) {
  const KvPageShape& page = setup.attention.page;
  const RingProbeOptions options = ProbeOptionsOf(setup, ops);
  ANNULUS_ASSIGN_OR_RETURN(const auto probe, RingProbe::Create(options, ops, backend));
  ExchangeRates rates;
  rates.link_bytes_per_second = 0;
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<double> messages,
                           Typical({[&] { return probe->Message(1, kRounds); },
                                    [&] { return probe->Message(kManyParts, kRounds); }}));
  rates.message_seconds = messages[0];
  rates.part_seconds = std::max(0.0, messages[1] - messages[0]) / (kManyParts - 1);
  if (probe->copies()) {
    const size_t bytes = probe->transfer_bytes();
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<double> large,
                             Typical({[&] { return probe->Transfer(bytes, 1); }}));
    // A large message takes no less than a small one, but for noise.
    rates.link_bytes_per_second =
        static_cast<double>(bytes) / std::max(large[0] - messages[0], large[0] / 4);
  }
  const double pair_flops = setup.attention.pair_flops();
  const int32_t stripe = StripeTokens(setup.ranks, page.page_tokens);
  const double others = setup.ranks - 1;
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<LayerTimes> layers,
                           TimeAttention(*probe, options, rates));
  std::vector<double> call_keys;
  for (size_t i = 0; i < layers.size(); ++i) {
    const AttentionRate& rate = rates.attention[i];
    // The time of a stripe beyond its keys is that of the calls and messages of the other ranks.
    const double calls = layers[i].kv_stripe - layers[i].first - others * rates.message_seconds;
    call_keys.push_back((calls * rate.alone_flops / (pair_flops * rate.rows) - stripe) / others);
  }
  std::sort(call_keys.begin(), call_keys.end());
  rates.call_keys = std::max(0.0, call_keys[call_keys.size() / 2]);
  // What is left of the difference between the modes where every rank holds one page.
  for (size_t i = 0; i < rates.attention.size(); ++i) {
    AttentionRate& rate = rates.attention[i];
    const RingWork work =
        StripedWork(rate.rows, stripe, setup.ranks, page.page_tokens, ShardsFor(setup.ranks));
    const auto foreseen = [&](RingMode mode) {
      return AttentionSeconds(mode, work, setup.attention, rates) +
             ExchangeSeconds(mode, work, setup.attention, rates);
    };
    const double difference = foreseen(RingMode::kPassQ) - foreseen(RingMode::kPassKv);
    rate.query_seconds = (layers[i].q_stripe - layers[i].kv_stripe - difference) / others;
  }
  return rates;
}

absl::StatusOr<ExchangeRates> MeasureAttention(const ExchangeSetup& setup, const OpTable& ops,
                                               Backend& backend) {
  const RingProbeOptions options = ProbeOptionsOf(setup, ops);
  ANNULUS_ASSIGN_OR_RETURN(const auto probe, RingProbe::Create(options, ops, backend));
  ExchangeRates rates;
  ANNULUS_RETURN_IF_ERROR(TimeAttention(*probe, options, rates).status());
  return rates;
}

}  // namespace annulus
