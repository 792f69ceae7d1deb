#ifndef ANNULUS_BENCH_ATTENTION_PATTERN_QUALITY_H_
#define ANNULUS_BENCH_ATTENTION_PATTERN_QUALITY_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/sparse/policy.h"

namespace annulus::bench {

// How good a policy's blocks are for attention with a known structure (StructuredHead).
struct PatternQuality {
  double coverage = 1;        // mean share of a row's softmax mass that its chosen blocks hold
  double relative_error = 0;  // |o - dense o| / |dense o|, over all rows
  // Density of the smallest set of blocks that holds `oracle_coverage` of the mass.
  double oracle_density = 1;
};

struct QualityOptions {
  int32_t tokens = 0;
  int heads = 8;
  int head_dim = 64;
  uint32_t seed = 1;
  int query_blocks = 8;  // number of query blocks to look at, evenly spread
  int rows = 8;          // rows to look at per query block, evenly spread
  double oracle_coverage = 0.95;
  // If not empty, the positions to look at instead, one per query block.
  std::vector<int64_t> looked_at = {};
  bool last_row_only = false;  // look only at the last row of the sequence
};

// A policy and the blocks that it chose for (head, query block). `chosen` is null if the policy
// does not depend on content.
struct JudgedPolicy {
  AttentionPolicy policy;
  std::function<std::span<const int32_t>(int head, int32_t block)> chosen;
};

// Judges each policy; block sizes may differ. Uses plain float arithmetic on sampled rows, so the
// result depends only on the blocks and not on the kernel that runs them. Calls `done` after each
// head. Takes time proportional to heads * query_blocks * rows * tokens * head_dim.
std::vector<PatternQuality> MeasureQuality(std::span<const JudgedPolicy> policies,
                                           const QualityOptions& options,
                                           const std::function<void(int head)>& done);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_ATTENTION_PATTERN_QUALITY_H_
