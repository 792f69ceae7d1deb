#ifndef ANNULUS_BENCH_MODEL_FORCED_ANSWER_H_
#define ANNULUS_BENCH_MODEL_FORCED_ANSWER_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace annulus::bench {

// A prompt, and the answer that the model is forced to give.
struct ForcedAnswer {
  std::vector<int32_t> prompt;
  std::vector<int32_t> answer;
};

// `what`: see ModelBenchOptions::force_tokens. The prompt has `depth` ids, at least 1, which are
// random except for those that mislead. The answer has `tokens` ids, or as many as the file has.
// Errors if the file cannot be read or has anything but ids below `vocabulary`, or if the prompt is
// too short for the answer.
absl::StatusOr<ForcedAnswer> ForceAnswer(const std::string& what, int32_t depth, int32_t tokens,
                                         int32_t vocabulary, std::mt19937& random);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_FORCED_ANSWER_H_
