#ifndef ANNULUS_TESTS_SUPPORT_THROUGH_BYTES_H_
#define ANNULUS_TESTS_SUPPORT_THROUGH_BYTES_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/codec/step_codec.h"
#include "kernels/base/status_macros.h"

// Plans and results of tests without real ranks, as another process would have them. Real ranks do
// the same under RankSetOptions::through_bytes.

namespace annulus::testing {

inline absl::StatusOr<StepPlan> ThroughBytes(const StepPlan& plan, const CodecLimits& limits) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string bytes, EncodePlan(plan, limits));
  return DecodePlan(bytes, limits);
}

inline absl::StatusOr<RankResult> ThroughBytes(const RankResult& result, const StepPlan& plan,
                                               const CodecLimits& limits) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string bytes, EncodeResult(result, limits));
  return DecodeResult(bytes, plan, limits);
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_THROUGH_BYTES_H_
