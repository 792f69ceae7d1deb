#ifndef ANNULUS_BENCH_REPORT_STATISTICS_H_
#define ANNULUS_BENCH_REPORT_STATISTICS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace annulus::bench {

// The smallest of `values` that is greater than or equal to at least `share` of them (nearest
// rank). NaN if there are no values. 0 < share <= 1.
inline double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return std::nan("");
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const size_t index = std::clamp<size_t>(static_cast<size_t>(rank), 1, values.size()) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(index), values.end());
  return values[index];
}

inline double Median(std::vector<double> values) { return Percentile(std::move(values), 0.5); }

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_REPORT_STATISTICS_H_
