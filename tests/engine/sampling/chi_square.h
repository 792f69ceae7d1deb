#ifndef ANNULUS_TESTS_ENGINE_SAMPLING_CHI_SQUARE_H_
#define ANNULUS_TESTS_ENGINE_SAMPLING_CHI_SQUARE_H_

#include <cmath>
#include <cstddef>
#include <span>

namespace annulus::testing {

// Pearson's statistic of observed counts against expected probabilities (all positive), as a
// standard normal score by Wilson and Hilferty's cube-root approximation. Above 4 the counts are
// not from that distribution (one chance in 30,000).
inline double ChiSquareScore(std::span<const int> counts, std::span<const double> probabilities) {
  double total = 0;
  for (int count : counts) total += count;
  double statistic = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * probabilities[i];
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  const double freedom = static_cast<double>(counts.size()) - 1;
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - spread)) / std::sqrt(spread);
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_SAMPLING_CHI_SQUARE_H_
