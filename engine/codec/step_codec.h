#ifndef ANNULUS_ENGINE_CODEC_STEP_CODEC_H_
#define ANNULUS_ENGINE_CODEC_STEP_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/state/step_plan.h"

namespace annulus {

// What plans and results are held against: bytes of a peer are input.
struct CodecLimits {
  std::vector<int32_t> pages;  // [rank] page ids are below
  int groups = 1;              // cache groups
  int32_t page_tokens = 64;
  int32_t vocabulary = 0;
  int layers = 1;
  int kv_heads = 1;
  // Longest message, refused before it is parsed; below the 2 GiB that protobuf can count. Parsing
  // makes several times as much of it.
  size_t bytes = size_t{1} << 30;
};

// Plans and results as bytes (proto/annulus/internal/v1/step.proto) and back; floats and doubles
// keep their bits. Decoding gives an equal value, or INVALID_ARGUMENT with what is wrong: bytes of
// another message, lists of unequal length, numbers out of range, ranks, pages or token ids that do
// not exist, items whose runs or tokens do not cover their rows, counters that are not finite. What
// depends on the steps before (does the rank know the sequence?) is the executor's to check:
// engine/runner/plan_check.h. Encoding fails with RESOURCE_EXHAUSTED if the message is longer than
// the limit: no peer would take it.
absl::StatusOr<std::string> EncodePlan(const StepPlan& plan, const CodecLimits& limits);
absl::StatusOr<StepPlan> DecodePlan(absl::string_view bytes, const CodecLimits& limits);

absl::StatusOr<std::string> EncodeResult(const RankResult& result, const CodecLimits& limits);
// A result answers a plan: tokens, logits and reports that the plan did not ask for are refused.
absl::StatusOr<RankResult> DecodeResult(absl::string_view bytes, const StepPlan& plan,
                                        const CodecLimits& limits);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_CODEC_STEP_CODEC_H_
