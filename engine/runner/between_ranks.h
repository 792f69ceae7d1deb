#ifndef ANNULUS_ENGINE_RUNNER_BETWEEN_RANKS_H_
#define ANNULUS_ENGINE_RUNNER_BETWEEN_RANKS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace annulus {

inline constexpr char kBetweenRanksPayload[] = "annulus/between-ranks";

// Marks the failure of a step: messages from one rank to another were lost, or changed on their
// way. No request causes that. `failure` is not OK.
inline absl::Status BetweenRanks(absl::Status failure) {
  failure.SetPayload(kBetweenRanksPayload, absl::Cord());
  return failure;
}

// Whether a step failed so.
inline bool IsBetweenRanks(const absl::Status& failure) {
  return failure.GetPayload(kBetweenRanksPayload).has_value();
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_BETWEEN_RANKS_H_
