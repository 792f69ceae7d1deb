#ifndef ANNULUS_BENCH_ATTENTION_PATTERN_QUALITY_H_
#define ANNULUS_BENCH_ATTENTION_PATTERN_QUALITY_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/sparse/policy.h"

namespace annulus {

// How good the blocks of a policy are for attention with a known structure (StructuredHead).
struct PatternQuality {
  double coverage = 1;        // mean share of a row's softmax mass inside its chosen blocks
  double relative_error = 0;  // |o - dense o| / |dense o|, over all rows
  double oracle_density =
      1;  // of the smallest set of blocks that has `oracle_coverage` of the mass
};

struct QualityOptions {
  int32_t tokens = 0;
  int heads = 8;
  int head_dim = 64;
  uint32_t seed = 1;
  int query_blocks = 8;  // looked at, evenly spread
  int rows = 8;          // of each, evenly spread
  double oracle_coverage = 0.95;
  // Where not empty, a position in each query block that is looked at instead.
  std::vector<int64_t> looked_at = {};
  bool last_row_only = false;  // of the sequence
};

// A policy, and what it chose: keys(head, query block). Null: the policy does not look at content.
struct JudgedPolicy {
  AttentionPolicy policy;
  std::function<std::span<const int32_t>(int head, int32_t block)> chosen;
};

// One result for each policy; block sizes may differ. Plain float arithmetic on sampled rows: what
// it says is true of the blocks, whatever kernel runs them. `done` hears of each head. Works in
// time heads * query_blocks * rows * tokens * head_dim.
std::vector<PatternQuality> MeasureQuality(std::span<const JudgedPolicy> policies,
                                           const QualityOptions& options,
                                           const std::function<void(int head)>& done);

}  // namespace annulus

#endif  // ANNULUS_BENCH_ATTENTION_PATTERN_QUALITY_H_
