#include "engine/scheduler/cost_model.h"

#include <algorithm>

namespace annulus {
namespace {

// Seconds on a link of which `hidden` pass beside attention.
double Exposed(double bytes, double hidden, const ExchangeRates& rates) {
  if (rates.link_bytes_per_second <= 0) return 0;
  return std::max(0.0, bytes / rates.link_bytes_per_second - hidden);
}

}  // namespace

double ExchangeSeconds(RingMode mode, int64_t rows, int64_t cached, int degree,
                       const AttentionGeometry& geometry, const ExchangeRates& rates) {
  if (degree <= 1) return 0;
  const double t = static_cast<double>(rows);
  const double p = static_cast<double>(cached);
  const double d = geometry.head_dim;
  const double share = static_cast<double>(degree - 1) / degree;
  // Each rank computes 1 / degree of the causal pairs; share of it overlaps with the exchange.
  const double attention =
      4 * geometry.heads * d * (t * p + t * t / 2) / degree / rates.flops * share;
  const double messages = (degree - 1) * rates.message_seconds;
  if (mode == RingMode::kPassKv) {
    const double bytes = 2 * (t + p) * geometry.kv_heads * d * geometry.kv_bytes_per_element;
    const double pages = (t + p) / geometry.page_tokens;
    return Exposed(bytes * share, attention, rates) + messages + pages * share * rates.part_seconds;
  }
  const double query_bytes = t * geometry.heads * d * geometry.query_bytes_per_element;
  const double state_bytes = t * geometry.heads * (d + 1) * 4;
  return Exposed(query_bytes * share, attention, rates) + Exposed(state_bytes * share, 0, rates) +
         2 * messages;
}

RingMode ChooseRingMode(int64_t rows, int64_t cached, int degree, const AttentionGeometry& geometry,
                        const ExchangeRates& rates) {
  const double pass_kv = ExchangeSeconds(RingMode::kPassKv, rows, cached, degree, geometry, rates);
  const double pass_q = ExchangeSeconds(RingMode::kPassQ, rows, cached, degree, geometry, rates);
  return pass_kv <= pass_q ? RingMode::kPassKv : RingMode::kPassQ;
}

}  // namespace annulus
