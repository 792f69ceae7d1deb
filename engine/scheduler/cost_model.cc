#include "engine/scheduler/cost_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/scheduler/placement.h"

namespace annulus {
namespace {

// Seconds on a link of which `hidden` pass beside attention.
double Exposed(double bytes, double hidden, const ExchangeRates& rates) {
  if (rates.link_bytes_per_second <= 0) return 0;
  return std::max(0.0, bytes / rates.link_bytes_per_second - hidden);
}

// [ring index] of the positions below `end`, those in its pages.
std::vector<int64_t> PositionsHeld(int64_t end, int degree, int page_tokens, int shards) {
  const int64_t round = int64_t{shards} * page_tokens;
  std::vector<int64_t> held(degree, 0);
  for (int page = 0; page < shards; ++page) {
    const int64_t rest = end % round - int64_t{page} * page_tokens;
    held[PlaceOnRing(page, 1, degree, shards)] +=
        end / round * page_tokens + std::clamp<int64_t>(rest, 0, page_tokens);
  }
  return held;
}

}  // namespace

RingWork StripedWork(int64_t rows, int64_t cached, int degree, int page_tokens, int shards) {
  const std::vector<int64_t> after = PositionsHeld(cached + rows, degree, page_tokens, shards);
  const std::vector<int64_t> before = PositionsHeld(cached, degree, page_tokens, shards);
  int64_t most_rows = 0;
  for (int i = 0; i < degree; ++i) most_rows = std::max(most_rows, after[i] - before[i]);
  const int64_t most_keys = *std::max_element(after.begin(), after.end());
  return {rows, cached, degree, static_cast<double>(most_rows) / static_cast<double>(rows),
          static_cast<double>(most_keys) / static_cast<double>(cached + rows)};
}

AttentionRate RateOf(double rows, const ExchangeRates& rates) {
  const auto above = std::find_if(
      rates.attention.begin(), rates.attention.end(),
      [&](const AttentionRate& rate) { return static_cast<double>(rate.rows) > rows; });
  if (above == rates.attention.begin()) return *above;
  const AttentionRate& low = *std::prev(above);
  if (above == rates.attention.end()) return low;
  const double part = std::log(rows / low.rows) / std::log(double(above->rows) / low.rows);
  AttentionRate rate = low;
  rate.flops += part * (above->flops - low.flops);
  rate.alone_flops += part * (above->alone_flops - low.alone_flops);
  rate.query_seconds += part * (above->query_seconds - low.query_seconds);
  return rate;
}

double AttentionSeconds(RingMode mode, const RingWork& work, const AttentionGeometry& geometry,
                        const ExchangeRates& rates) {
  const double t = static_cast<double>(work.rows);
  const double p = static_cast<double>(work.cached);
  const double pages = std::ceil((t + p) / geometry.page.page_tokens);
  const double calls = std::min<double>(work.degree, pages) * rates.call_keys;
  const double flops = geometry.pair_flops() * t * (p + t / 2 + calls);
  const AttentionRate rate = RateOf(t * work.row_share, rates);
  const double share = mode == RingMode::kPassKv ? work.row_share : work.key_share;
  return std::max(flops * share / rate.alone_flops, flops / work.degree / rate.flops);
}

double ExchangeSeconds(RingMode mode, const RingWork& work, const AttentionGeometry& geometry,
                       const ExchangeRates& rates) {
  if (work.degree <= 1) return 0;
  const double t = static_cast<double>(work.rows);
  const double p = static_cast<double>(work.cached);
  const KvPageShape& page = geometry.page;
  const double share = static_cast<double>(work.degree - 1) / work.degree;
  // The part of attention that overlaps with the exchange.
  const double attention = AttentionSeconds(mode, work, geometry, rates) * share;
  const double others = work.degree - 1;
  const double messages = others * rates.message_seconds;
  if (mode == RingMode::kPassKv) {
    const double bytes = (t + p) * page.kv_heads * (page.k_dim + page.v_dim) *
                         static_cast<double>(DTypeSize(page.dtype));
    const double pages = (t + p) / page.page_tokens;
    return Exposed(bytes * share, attention, rates) + messages + pages * share * rates.part_seconds;
  }
  // From 0, where all ranks have as many rows, to 1, where one has all, as when that was measured.
  const double alone = (work.row_share * work.degree - 1) / others;
  const double query_bytes = t * geometry.heads * page.k_dim * geometry.query_bytes_per_element;
  const double state_bytes = t * geometry.heads * (page.v_dim + 1) * 4;
  return Exposed(query_bytes * share, attention, rates) + Exposed(state_bytes * share, 0, rates) +
         2 * messages + others * alone * RateOf(t * work.row_share, rates).query_seconds;
}

RingMode ChooseRingMode(const RingWork& work, const AttentionGeometry& geometry,
                        const ExchangeRates& rates) {
  const auto seconds = [&](RingMode mode) {
    return AttentionSeconds(mode, work, geometry, rates) +
           ExchangeSeconds(mode, work, geometry, rates);
  };
  return seconds(RingMode::kPassKv) <= seconds(RingMode::kPassQ) ? RingMode::kPassKv
                                                                 : RingMode::kPassQ;
}

}  // namespace annulus
