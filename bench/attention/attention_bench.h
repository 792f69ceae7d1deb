#ifndef ANNULUS_BENCH_ATTENTION_ATTENTION_BENCH_H_
#define ANNULUS_BENCH_ATTENTION_ATTENTION_BENCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/attention/ring_world.h"
#include "bench/peak/peak_meter.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"
#include "engine/sparse/policy.h"

namespace annulus::bench {

struct AttentionBenchOptions {
  AttentionShape shape;                   // its `tokens` is ignored
  std::vector<int32_t> sequences;         // lengths in tokens; a group of rows for each
  std::vector<AttentionPolicy> policies;  // a row for each, next to the dense row
  std::optional<double> density;          // if given, sets the policies' extents: see WithDensity
  int most_chunks = 0;   // run this many chunks, evenly spread, to represent all; 0: all
  bool quality = false;  // also measure what the patterns lose: see MeasureQuality
  bool decode = false;   // also time one query over the whole sequence
  RingMode ring_mode = RingMode::kPassKv;  // kPassKv or kPassQ
  int repeat = 5;                          // runs per row; figures are medians
  std::string kernels;                     // an OpTable's name; if empty, the best
  std::optional<PeakKind> peak;            // the ceiling; if absent, the fastest that applies
};

// Times attention alone, through the ring and an OpTable, over random keys and values. For each
// sequence, after a warm-up, every repetition runs causal dense attention and then each policy with
// the same kernel, so that ratios compare measurements close in time. If only some chunks run,
// their times are divided by their share of the attended pairs. Block lists are built beforehand;
// the time for that is reported separately. The ceilings are measured before and after each
// repetition. INVALID_ARGUMENT for impossible shapes or densities, FAILED_PRECONDITION if no kernel
// fits, RESOURCE_EXHAUSTED if there is not enough memory.
absl::Status RunAttentionBench(const AttentionBenchOptions& options, const PeakMeter& meter,
                               BenchProgress& progress,
                               const std::function<void(const Row&)>& report);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_ATTENTION_ATTENTION_BENCH_H_
