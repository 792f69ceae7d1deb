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

namespace annulus {

struct AttentionBenchOptions {
  AttentionShape shape;                    // all but `tokens`
  std::vector<int32_t> sequences;          // tokens; rows for each
  std::vector<AttentionPolicy> policies;   // a row for each beside the dense one
  std::optional<double> density;           // sets the policies' extents; see WithDensity
  int most_chunks = 0;                     // run so many, evenly spread, for all; 0: all
  bool quality = false;                    // also what the patterns lose: see MeasureQuality
  bool decode = false;                     // also a row for one query over the whole sequence
  RingMode ring_mode = RingMode::kPassKv;  // kPassKv or kPassQ
  int repeat = 5;                          // runs of a row; its figures are medians
  std::string kernels;                     // an OpTable by name; empty: the best
  std::optional<PeakKind> peak;            // ceiling; absent: the fastest that applies
};

// Times attention alone, through the ring and an OpTable, over random keys and values. For each
// sequence, after a warm-up, every repetition runs causal dense attention and then each policy with
// the same kernel, so that ratios compare neighbours in time. Where not all chunks run, times are
// those of the chunks over their share of the attended pairs. Block lists are built ahead; what
// that takes is stated apart. The ceilings are measured before and after each repetition.
// INVALID_ARGUMENT for shapes and densities that make no sense, FAILED_PRECONDITION where no kernel
// fits, RESOURCE_EXHAUSTED where the memory does not suffice.
absl::Status RunAttentionBench(const AttentionBenchOptions& options, const PeakMeter& meter,
                               BenchProgress& progress,
                               const std::function<void(const Row&)>& report);

}  // namespace annulus

#endif  // ANNULUS_BENCH_ATTENTION_ATTENTION_BENCH_H_
