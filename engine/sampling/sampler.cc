#include "engine/sampling/sampler.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/sampling/logprobs.h"
#include "engine/sampling/philox.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// An adjustment never excludes a token and never includes an excluded one.
void SetLogit(Candidate& candidate, float value) {
  if (candidate.value == kExcluded) return;
  constexpr float kLimit = std::numeric_limits<float>::max();
  candidate.value = std::clamp(value, -kLimit, kLimit);
}

absl::Status NoUsableLogit(int64_t position) {
  return absl::InternalError(
      absl::StrCat("the model gave no usable logit for position ", position,
                   ": all are NaN or -inf; the checkpoint or the kernels are at fault"));
}

}  // namespace

Sampler::Sampler(const SamplingParams& params, int32_t vocabulary,
                 std::span<const int32_t> end_of_text_ids)
    : vocabulary_(vocabulary),
      seed_(params.seed.value_or(0)),
      min_tokens_(params.min_tokens),
      temperature_(params.temperature),
      top_p_(params.top_p),
      top_k_(params.top_k),
      min_p_(params.min_p),
      frequency_penalty_(params.frequency_penalty),
      presence_penalty_(params.presence_penalty),
      repetition_penalty_(params.repetition_penalty),
      logprobs_(params.logprobs),
      logit_bias_(params.logit_bias.begin(), params.logit_bias.end()),
      ending_ids_(params.stop_token_ids) {
  ANNULUS_CHECK(params.seed.has_value()) << "the engine draws the seed before";
  if (!params.ignore_eos) {
    ending_ids_.insert(ending_ids_.end(), end_of_text_ids.begin(), end_of_text_ids.end());
  }
  for (int32_t token : ending_ids_) {
    ANNULUS_CHECK(token >= 0 && token < vocabulary_) << "token " << token;
  }
  std::sort(ending_ids_.begin(), ending_ids_.end());
}

void Sampler::ObservePrompt(std::span<const int32_t> tokens) {
  if (repetition_penalty_ == 1) return;
  for (int32_t token : tokens) {
    ANNULUS_CHECK(token >= 0 && token < vocabulary_) << "token " << token;
    seen_.try_emplace(token, 0);
  }
}

void Sampler::Observe(int32_t token) {
  ANNULUS_CHECK(token >= 0 && token < vocabulary_) << "token " << token;
  ++generated_;
  if (repetition_penalty_ == 1 && frequency_penalty_ == 0 && presence_penalty_ == 0) return;
  ++seen_[token];
}

bool Sampler::EndsText(int32_t token) const {
  return std::binary_search(ending_ids_.begin(), ending_ids_.end(), token);
}

void Sampler::Adjust(std::span<Candidate> logits) const {
  for (const auto& [token, bias] : logit_bias_) SetLogit(logits[token], logits[token].value + bias);
  for (const auto& [token, count] : seen_) {
    float value = logits[token].value;
    value = value > 0 ? value / repetition_penalty_ : value * repetition_penalty_;
    value -= frequency_penalty_ * static_cast<float>(count);
    if (count > 0) value -= presence_penalty_;
    SetLogit(logits[token], value);
  }
  if (!StopsAllowed()) {
    for (int32_t token : ending_ids_) logits[token].value = kExcluded;
  }
}

SampleRow Sampler::RowFor(int64_t position) const {
  SampleRow row{temperature_, top_k_, top_p_, min_p_, 0};
  if (temperature_ > 0) row.uniform = UniformAt(seed_, static_cast<uint64_t>(position));
  return row;
}

std::optional<SampleRow> Sampler::PlainRow(int64_t position) const {
  const bool penalties =
      repetition_penalty_ != 1 || frequency_penalty_ != 0 || presence_penalty_ != 0;
  const bool excluding = !StopsAllowed() && !ending_ids_.empty();
  if (penalties || excluding || !logit_bias_.empty() || logprobs_.has_value()) return std::nullopt;
  return RowFor(position);
}

absl::StatusOr<SampleResult> Sampler::ResultOfRow(int32_t token, int64_t position) {
  if (token < 0) return NoUsableLogit(position);
  return SampleResult{token, std::nullopt};
}

absl::StatusOr<SampleResult> Sampler::Sample(std::span<const float> logits, int64_t position,
                                             std::span<Candidate> workspace) const {
  ANNULUS_CHECK(logits.size() == static_cast<size_t>(vocabulary_));
  ANNULUS_CHECK(workspace.size() >= logits.size());
  ANNULUS_CHECK(position >= 0);
  const int32_t greatest = GreatestToken(logits);
  if (greatest < 0) return NoUsableLogit(position);
  if (temperature_ == 0 && PlainRow(position).has_value()) {
    return SampleResult{greatest, std::nullopt};
  }
  const std::span<Candidate> candidates = workspace.first(logits.size());
  for (int32_t token = 0; token < vocabulary_; ++token) {
    candidates[token] = {ReadLogit(logits[token]), token};
  }
  Adjust(candidates);
  const Candidate best = *std::min_element(candidates.begin(), candidates.end(), Before);
  if (best.value == kExcluded) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens: every token that the model allows at position ", position,
                     " ends the text, but ", generated_, " of at least ", min_tokens_,
                     " tokens are generated; lower min_tokens or name fewer stop_token_ids"));
  }

  SampleResult result;
  result.token = temperature_ == 0 ? best.token : ChooseToken(candidates, RowFor(position));
  if (logprobs_.has_value()) result.logprob = LogprobOf(logits, result.token, *logprobs_);
  return result;
}

}  // namespace annulus
