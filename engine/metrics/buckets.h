#ifndef ANNULUS_ENGINE_METRICS_BUCKETS_H_
#define ANNULUS_ENGINE_METRICS_BUCKETS_H_

#include <vector>

namespace annulus {

// Upper bounds of histogram buckets, ascending and finite; the histogram adds the infinite one.

// Seconds of whole phases: 1 ms to 8 hours, since a long document's prefill takes that long.
std::vector<double> LatencyBuckets();

// Seconds between two tokens: 0.1 ms to 100 s.
std::vector<double> TokenLatencyBuckets();

// Counts of tokens: 1 to 10 million in steps of 1, 2, 5.
std::vector<double> TokenCountBuckets();

// Counts of what mostly does not happen, such as preemptions of a request: 0 to 1000.
std::vector<double> RareCountBuckets();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_METRICS_BUCKETS_H_
