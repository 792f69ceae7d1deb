#ifndef ANNULUS_BENCH_MODEL_FORCED_ANSWER_H_
#define ANNULUS_BENCH_MODEL_FORCED_ANSWER_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace annulus {

// A prompt and the answer that is forced upon the model.
struct ForcedAnswer {
  std::vector<int32_t> prompt;
  std::vector<int32_t> answer;
};

// `what`: see ModelBenchOptions::force_tokens. The prompt has `depth` random ids, at least 1, but
// for what misleads; the answer `tokens` of them, or as many as the file has. Errors: the file
// cannot be read, or holds something else than ids below `vocabulary`; a prompt that is too short
// for the answer.
absl::StatusOr<ForcedAnswer> ForceAnswer(const std::string& what, int32_t depth, int32_t tokens,
                                         int32_t vocabulary, std::mt19937& random);

}  // namespace annulus

#endif  // ANNULUS_BENCH_MODEL_FORCED_ANSWER_H_
