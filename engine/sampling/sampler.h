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
#include "engine/grammar/matcher.h"
#include "kernels/base/candidates.h"
#include "kernels/ops/sampling.h"

namespace annulus {

struct SampleResult {
  int32_t token = 0;
  std::optional<TokenLogprob> logprob;  // present if SamplingParams::logprobs is
};

// Chooses the next tokens of one sequence. Lives on the sequence's home rank. Order of application:
// what an output constraint allows, logit_bias, penalties, temperature, top_k, top_p, min_p, draw.
// The number drawn depends only on (seed, position), so the result does not depend on what else is
// in the step or how prompts are cut.
//
// Repetition penalty: Keskar et al. (CTRL), arXiv 1909.05858, section 4.1, as Transformers applies
// it: once per distinct token of prompt and answer; positive logits are divided, negative ones
// multiplied. Frequency penalty: subtracted from the logit once per occurrence of the token in the
// answer. Presence penalty: subtracted once if the token occurs there (OpenAI's definition).
//
// Memory, which is also what the op `sample` receives (kernels/ops/sampling.h): 12 bytes for each
// distinct token of the answer (if a penalty is on), for each bias and, until min_tokens is
// reached, for each token that ends the text; and with the repetition penalty one bit per
// vocabulary entry, whatever the prompt's length. A constraint takes another bit per vocabulary
// entry besides its GrammarCache. Not thread-safe.
//
// When the tokens of Machine::thinking_tokens are used up, those that end the reasoning come,
// whatever the logits say. Where a constraint leaves only tokens that end the text, they are chosen
// even if min_tokens has not been reached. If the constraint turns out too ambiguous or too deep
// (GrammarMatcher), that ends the sequence: ResultOf and Sample return INVALID_ARGUMENT.
class Sampler {
 public:
  // `params` must have passed ValidateSampling and have a seed. `end_of_text_ids`: the model's.
  // `forced`: ids that the answer begins with, whatever the logits say. `output`: the constraint,
  // at the beginning of the answer; its tokens that end the text must be among those ids, and its
  // vocabulary as large.
  Sampler(const SamplingParams& params, int32_t vocabulary,
          std::span<const int32_t> end_of_text_ids, std::vector<int32_t> forced = {},
          std::optional<GrammarMatcher> output = std::nullopt);

  // Records the prompt, in one or more parts. Each token counts once.
  void ObservePrompt(std::span<const int32_t> tokens);

  // Records a token of the answer. Call for each token that is kept, in order.
  void Observe(int32_t token);

  // Chooses the token for absolute position `position` >= 0 from `logits` ([vocabulary], float32).
  // `workspace`: `vocabulary` entries of scratch memory from the step's arena. Temperature 0
  // (greedy) takes the lowest id among the greatest logits. NaN counts as -inf. INTERNAL if no
  // logit is above -inf; INVALID_ARGUMENT if min_tokens excludes all that are.
  absl::StatusOr<SampleResult> Sample(std::span<const float> logits, int64_t position,
                                      std::span<Candidate> workspace);

  // Whether a row's logits must reach the host. Log-probabilities need all of them.
  bool wants_logits() const { return logprobs_.has_value(); }
  // Whether the choice depends on the answer's tokens in addition to the logits.
  bool depends_on_answer() const { return penalizes() || !StopsAllowed() || output_.has_value(); }
  // The arguments with which the op `sample` chooses the token for `position` as Sample would. Its
  // lists point into this sampler and are valid until the next Observe. If the constraint fails,
  // the row allows everything, and ResultOf returns the error.
  SampleRow RowAt(int64_t position);
  // What Sample would return if it chose `token`, except log-probabilities. For use after that op.
  absl::StatusOr<SampleResult> ResultOf(int32_t token, int64_t position) const;

  // Whether `token` ends the text: a stop id, or the model's end of text unless ignore_eos is set.
  // Such tokens are not chosen until min_tokens tokens have been observed.
  bool EndsText(int32_t token) const;

  // Whether the answer has reached min_tokens, or cannot, so that stops apply.
  bool StopsAllowed() const { return generated_ >= min_tokens_ || output_ends_; }

  int32_t generated() const { return generated_; }

 private:
  bool penalizes() const {
    return penalties_.repetition != 1 || penalties_.frequency != 0 || penalties_.presence != 0;
  }
  LogitEdit& EditOf(int32_t token);
  void AllowStops();
  // Finds what the constraint allows next, unless that is known.
  void FindAllowed();
  // The token that must come to end the reasoning, if one must.
  std::optional<int32_t> ThinkingEnd() const;

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
  std::vector<LogitEdit> edits_;  // for SampleRow, like `seen_` and `allowed_`
  std::vector<uint32_t> seen_;

  std::optional<GrammarMatcher> output_;
  absl::Status output_status_;
  int32_t thought_ = 0;            // tokens of reasoning, without those that had to end it
  int32_t closed_ = 0;             // such tokens of the block that is being ended
  std::vector<uint32_t> allowed_;  // empty: not known yet
  std::optional<int32_t> only_;    // with `allowed_`: the token, if it is one
  bool output_ends_ = false;       // `allowed_` has nothing but tokens that end the text
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SAMPLING_SAMPLER_H_
