#include "engine/scheduler/cost_model.h"

#include <algorithm>

namespace annulus {

double ExposedSeconds(RingMode mode, int64_t rows, int64_t cached, int degree,
                      const AttentionGeometry& geometry, const ExchangeRates& rates) {
  if (degree <= 1) return 0;
  const double t = static_cast<double>(rows);
  const double p = static_cast<double>(cached);
  const double d = geometry.head_dim;
  const double share = static_cast<double>(degree - 1) / degree;
  const double messages = (degree - 1) * rates.message_seconds;
  // Each rank computes 1 / degree of the causal pairs; share of it overlaps with the exchange.
  const double attention =
      4 * geometry.heads * d * (t * p + t * t / 2) / degree / rates.flops * share;
  if (mode == RingMode::kPassKv) {
    const double bytes = 2 * (t + p) * geometry.kv_heads * d * geometry.kv_bytes_per_element;
    return std::max(0.0, bytes * share / rates.link_bytes_per_second + messages - attention);
  }
  const double query_bytes = t * geometry.heads * d * geometry.query_bytes_per_element;
  const double state_bytes = t * geometry.heads * (d + 1) * 4;
  return std::max(0.0, query_bytes * share / rates.link_bytes_per_second + messages - attention) +
         state_bytes * share / rates.link_bytes_per_second + messages;
}

RingMode ChooseRingMode(int64_t rows, int64_t cached, int degree, const AttentionGeometry& geometry,
                        const ExchangeRates& rates) {
  const double pass_kv = ExposedSeconds(RingMode::kPassKv, rows, cached, degree, geometry, rates);
  const double pass_q = ExposedSeconds(RingMode::kPassQ, rows, cached, degree, geometry, rates);
  return pass_kv <= pass_q ? RingMode::kPassKv : RingMode::kPassQ;
}

}  // namespace annulus
