#ifndef ANNULUS_BENCH_QUALITY_QUALITY_H_
#define ANNULUS_BENCH_QUALITY_QUALITY_H_

// What a saving costs: a model with rounded weights, rounded keys and values, or an attention
// policy, beside the same model without.

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "bench/quality/next_tokens.h"
#include "engine/runner/rank_model.h"
#include "engine/sparse/assignment.h"
#include "engine/sparse/block_pattern.h"

namespace annulus {

// One of two models that read the same texts.
struct QualityModel {
  const RankModel& model;
  AttentionAssignment attention;
};

struct Quality {
  NextTokens next;
  // Pairs of rows and keys that were attended, of all pairs, summed over layers; none without a
  // policy.
  PairCount pairs;
  double covered = 0;  // share of the attention in what was attended, summed over `covered_rows`
  double covered_rows = 0;  // sampled rows and heads; 0: nothing was left out
  double reference_seconds = 0;
  double seconds = 0;

  void Add(const Quality& more);
};

// Both read `tokens` (at least two) on one rank, and their distributions of each next token are
// compared. `read` hears how many tokens both have read. RESOURCE_EXHAUSTED: no memory for keys and
// values; INVALID_ARGUMENT: a policy that does not fit the model.
absl::StatusOr<Quality> CompareQuality(const QualityModel& reference, const QualityModel& compared,
                                       Backend& backend, int threads,
                                       std::span<const int32_t> tokens,
                                       const std::function<void(int64_t)>& read);

}  // namespace annulus

#endif  // ANNULUS_BENCH_QUALITY_QUALITY_H_
