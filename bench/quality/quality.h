#ifndef ANNULUS_BENCH_QUALITY_QUALITY_H_
#define ANNULUS_BENCH_QUALITY_QUALITY_H_

// What a saving costs: compares a model with rounded weights, rounded keys and values, or an
// attention policy with the same model without it.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/quality/next_tokens.h"
#include "engine/runner/rank_model.h"
#include "engine/sparse/assignment.h"
#include "engine/sparse/block_pattern.h"

namespace annulus::bench {

// One of the models that read the same text.
struct QualityModel {
  const RankModel& model;
  AttentionAssignment attention;
};

struct Quality {
  NextTokens next;
  // Attended pairs of rows and keys, and all pairs, summed over layers; both 0 without a policy.
  PairCount pairs;
  double covered = 0;  // share of attention that the attended keys hold, summed over `covered_rows`
  double covered_rows = 0;  // sampled rows and heads; 0: nothing was left out
  double reference_seconds = 0;
  double seconds = 0;

  void Add(const Quality& more);
};

// Lets the reference and each of `compared` read `tokens` (at least two) on one rank, side by side,
// and compares their distributions of each next token: a Quality for each, in that order. All keep
// their keys and values at the same time. Calls `read` with the number of tokens that all have
// read. RESOURCE_EXHAUSTED if keys and values do not fit in memory; INVALID_ARGUMENT if a policy
// does not fit its model.
absl::StatusOr<std::vector<Quality>> CompareQuality(const QualityModel& reference,
                                                    std::span<const QualityModel> compared,
                                                    Backend& backend, int threads,
                                                    std::span<const int32_t> tokens,
                                                    const std::function<void(int64_t)>& read);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_QUALITY_QUALITY_H_
