#include "engine/metrics/buckets.h"

namespace annulus {

std::vector<double> LatencyBuckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25, 0.5,  1,    2.5,   5,    10,
          20,    30,     60,    120,  300,   600,  1200, 1800, 3600, 7200, 14400, 28800};
}

std::vector<double> TokenLatencyBuckets() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
          0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30,    100};
}

std::vector<double> TokenCountBuckets() {
  return {1,    2,   5,   10,  20,  50,  100, 200, 500, 1000, 2000,
          5000, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6,  1e7};
}

std::vector<double> RareCountBuckets() { return {0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}; }

}  // namespace annulus
