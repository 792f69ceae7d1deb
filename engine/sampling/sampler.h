#ifndef ANNULUS_ENGINE_SAMPLING_SAMPLER_H_
#define ANNULUS_ENGINE_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "kernels/base/candidates.h"
#include "kernels/ops/sampling.h"

namespace annulus {

struct SampleResult {
  int32_t token = 0;
  std::optional<TokenLogprob> logprob;  // present when SamplingParams::logprobs is
};

// Chooses the next token of one sequence; lives on the sequence's home rank. The order of steps is
// logit_bias, penalties, temperature, top_k, top_p, min_p, draw. The number drawn depends only on
// (seed, position), so the result does not depend on what shares the step or how it was cut.
//
// Repetition penalty: Keskar et al. (CTRL), arXiv 1909.05858, section 4.1, as Transformers applies
// it: once per distinct token of prompt and answer, positive logits divided, negative multiplied.
// Frequency and presence penalties: subtracted from the logit, times the token's count in the
// answer and once if it is there (the definition of OpenAI's API).
//
// Memory is proportional to the distinct tokens seen, and zero when no penalty is on. Not
// thread-safe.
class Sampler {
 public:
  // `params` passed ValidateSampling and has its seed. `end_of_text_ids` are the model's.
  Sampler(const SamplingParams& params, int32_t vocabulary,
          std::span<const int32_t> end_of_text_ids);

  // Records the prompt, in one or several parts, each token once.
  void ObservePrompt(std::span<const int32_t> tokens);

  // Records a token of the answer; the caller does so for each token that it keeps, in order.
  void Observe(int32_t token);

  // Chooses the token for absolute position `position` >= 0 from `logits` ([vocabulary], float32).
  // `workspace` has `vocabulary` entries (from the step's arena; contents do not matter).
  // Greedy (temperature 0) takes the lowest id among the greatest logits. NaN counts as -inf.
  // INTERNAL when no logit is above -inf; INVALID_ARGUMENT when min_tokens excludes all that are.
  absl::StatusOr<SampleResult> Sample(std::span<const float> logits, int64_t position,
                                      std::span<Candidate> workspace) const;

  // How the op `sample` would choose the token for `position`, where Sample would do nothing else:
  // no bias, penalty or token that min_tokens excludes, and no log-probabilities asked for.
  std::optional<SampleRow> PlainRow(int64_t position) const;
  // What Sample returns where that op chose `token`; -1 is its word for no logit above -inf.
  static absl::StatusOr<SampleResult> ResultOfRow(int32_t token, int64_t position);

  // Whether `token` ends the text: a stop id, or the model's end of text unless ignore_eos is set.
  // Such tokens are not chosen before min_tokens were observed.
  bool EndsText(int32_t token) const;

  // Whether the answer has reached min_tokens, from where on stops count.
  bool StopsAllowed() const { return generated_ >= min_tokens_; }

  int32_t generated() const { return generated_; }

 private:
  void Adjust(std::span<Candidate> logits) const;
  SampleRow RowFor(int64_t position) const;

  const int32_t vocabulary_;
  const uint64_t seed_;
  const int32_t min_tokens_;
  const float temperature_;
  const float top_p_;
  const int32_t top_k_;
  const float min_p_;
  const float frequency_penalty_;
  const float presence_penalty_;
  const float repetition_penalty_;
  const std::optional<int32_t> logprobs_;
  const std::vector<std::pair<int32_t, float>> logit_bias_;
  std::vector<int32_t> ending_ids_;  // sorted

  int32_t generated_ = 0;
  std::unordered_map<int32_t, int32_t> seen_;  // token -> times generated; 0: only in the prompt
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SAMPLING_SAMPLER_H_
