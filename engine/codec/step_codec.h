#ifndef ANNULUS_ENGINE_CODEC_STEP_CODEC_H_
#define ANNULUS_ENGINE_CODEC_STEP_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/sparse/assignment.h"
#include "engine/state/step_plan.h"

namespace annulus {

// What decoded plans and results are checked against; a peer's bytes are not trusted.
struct CodecLimits {
  std::vector<int32_t> pages;  // [rank] number of pages: ids are below
  int groups = 1;              // number of cache groups
  AssignmentLimits model;
  int32_t vocabulary = 0;
  // Longest message; longer ones are rejected before parsing. Less than protobuf's limit of 2 GiB.
  // Parsing needs several times as much memory.
  size_t bytes = size_t{1} << 30;
};

// Convert plans and results to bytes (proto/annulus/internal/v1/step.proto) and back; floats and
// doubles keep their bits, and equal plans give equal bytes. Decoding returns an equal value, or
// INVALID_ARGUMENT with the reason: bytes of another message, lists of different lengths, numbers
// out of range, ranks, pages or token ids that do not exist, items whose runs or tokens do not
// cover their rows, or counters that are not finite.
//
// Conditions that depend on earlier steps (does the rank know the sequence?) are checked by the
// executor: engine/runner/plan_check.h. Encoding returns RESOURCE_EXHAUSTED if the message would be
// longer than the limit, since no peer would accept it.
absl::StatusOr<std::string> EncodePlan(const StepPlan& plan, const CodecLimits& limits);
absl::StatusOr<StepPlan> DecodePlan(absl::string_view bytes, const CodecLimits& limits);

absl::StatusOr<std::string> EncodeResult(const RankResult& result, const CodecLimits& limits);
// Checks the result against its plan: tokens, logits and reports that the plan did not request are
// INVALID_ARGUMENT.
absl::StatusOr<RankResult> DecodeResult(absl::string_view bytes, const StepPlan& plan,
                                        const CodecLimits& limits);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_CODEC_STEP_CODEC_H_
