#ifndef ANNULUS_ENGINE_SAMPLING_SAMPLER_H_
#define ANNULUS_ENGINE_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api/request.h"
#include "engine/api/result.h"
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
// What it remembers is what the op `sample` is given, kernels/ops/sampling.h: 12 bytes for each
// distinct token of the answer, where a penalty is on, for each bias and, until min_tokens, for
// each token that ends the text; and a bit for each of the vocabulary if the repetition penalty is
// on, whatever the prompt's length. Not thread-safe.
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

  // Log-probabilities need all logits of a row; tokens may be chosen where these are.
  bool wants_logits() const { return logprobs_.has_value(); }
  // Whether a token is chosen otherwise after other tokens of the answer, its logits being equal.
  bool depends_on_answer() const { return penalizes() || !StopsAllowed(); }
  // How the op `sample` chooses the token for `position` as Sample would. The row's lists are this
  // sampler's own: valid until the next token is observed.
  SampleRow RowAt(int64_t position) const;
  // What Sample returns, but for log-probabilities, where that op gave `token`.
  absl::StatusOr<SampleResult> ResultOf(int32_t token, int64_t position) const;

  // Whether `token` ends the text: a stop id, or the model's end of text unless ignore_eos is set.
  // Such tokens are not chosen before min_tokens were observed.
  bool EndsText(int32_t token) const;

  // Whether the answer has reached min_tokens, from where on stops count.
  bool StopsAllowed() const { return generated_ >= min_tokens_; }

  int32_t generated() const { return generated_; }

 private:
  bool penalizes() const {
    return penalties_.repetition != 1 || penalties_.frequency != 0 || penalties_.presence != 0;
  }
  LogitEdit& EditOf(int32_t token);
  void AllowStops();

  const int32_t vocabulary_;
  const uint64_t seed_;
  const int32_t min_tokens_;
  const float temperature_;
  const float top_p_;
  const int32_t top_k_;
  const float min_p_;
  const Penalties penalties_;
  const std::optional<int32_t> logprobs_;
  const std::vector<int32_t> forced_;
  const std::vector<std::pair<int32_t, float>> logit_bias_;  // ascending
  std::vector<int32_t> ending_ids_;                          // sorted

  int32_t generated_ = 0;
  std::vector<LogitEdit> edits_;  // as of SampleRow, like `seen_`
  std::vector<uint32_t> seen_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SAMPLING_SAMPLER_H_
