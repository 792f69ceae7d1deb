#ifndef ANNULUS_ENGINE_RUNNER_BETWEEN_RANKS_H_
#define ANNULUS_ENGINE_RUNNER_BETWEEN_RANKS_H_

#include <utility>

#include "absl/status/status.h"
#include "kernels/base/status_mark.h"

namespace annulus {

inline constexpr char kBetweenRanksMark[] = "annulus/between-ranks";

// Marks the failure of a step: messages from one rank to another were lost, or changed on their
// way. No request causes that. `failure` is not OK.
inline absl::Status BetweenRanks(absl::Status failure) {
  return WithMark(std::move(failure), kBetweenRanksMark);
}

// Whether a step failed so.
inline bool IsBetweenRanks(const absl::Status& failure) {
  return HasMark(failure, kBetweenRanksMark);
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_BETWEEN_RANKS_H_
