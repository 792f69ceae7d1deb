#include "engine/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/sampling/logprobs.h"
#include "engine/sampling/philox.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

// What a client is told: its constraint is at fault, and another try would end in the same way.
absl::Status OutputError(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::InvalidArgumentError(absl::StrCat("output: ", status.message()));
}

}  // namespace

Sampler::Sampler(const SamplingParams& params, int32_t vocabulary,
                 std::span<const int32_t> end_of_text_ids, std::vector<int32_t> forced,
                 std::optional<GrammarMatcher> output)
    : vocabulary_(vocabulary),
      seed_(params.seed.value_or(0)),
      min_tokens_(params.min_tokens),
      temperature_(params.temperature),
      top_p_(params.top_p),
      top_k_(params.top_k),
      min_p_(params.min_p),
      penalties_{params.repetition_penalty, params.frequency_penalty, params.presence_penalty},
      logprobs_(params.logprobs),
      forced_(std::move(forced)),
      logit_bias_(params.logit_bias.begin(), params.logit_bias.end()),
      ending_ids_(params.stop_token_ids),
      output_(std::move(output)) {
  ANNULUS_CHECK(params.seed.has_value()) << "the engine draws the seed before";
  if (!params.ignore_eos) {
    ending_ids_.insert(ending_ids_.end(), end_of_text_ids.begin(), end_of_text_ids.end());
  }
  for (int32_t token : ending_ids_) {
    ANNULUS_CHECK(token >= 0 && token < vocabulary_) << "token " << token;
  }
  std::sort(ending_ids_.begin(), ending_ids_.end());
  for (const auto& [token, bias] : logit_bias_) edits_.push_back({.token = token, .bias = bias});
  if (StopsAllowed()) return;
  for (const int32_t token : ending_ids_) EditOf(token).bias = kExcludedLogit;
}

LogitEdit& Sampler::EditOf(int32_t token) {
  const auto at = std::lower_bound(edits_.begin(), edits_.end(), token,
                                   [](const LogitEdit& e, int32_t t) { return e.token < t; });
  if (at != edits_.end() && at->token == token) return *at;
  return *edits_.insert(at, {.token = token});
}

void Sampler::AllowStops() {
  for (const int32_t token : ending_ids_) {
    const auto at = std::lower_bound(logit_bias_.begin(), logit_bias_.end(), token,
                                     [](const auto& bias, int32_t t) { return bias.first < t; });
    const bool biased = at != logit_bias_.end() && at->first == token;
    EditOf(token).bias = biased ? at->second : 0;
  }
  std::erase_if(edits_, [](const LogitEdit& e) { return e.count < 0 && e.bias == 0; });
}

void Sampler::ObservePrompt(std::span<const int32_t> tokens) {
  if (penalties_.repetition == 1) return;
  seen_.resize(static_cast<size_t>(SeenWords(vocabulary_)));
  for (const int32_t token : tokens) {
    ANNULUS_CHECK(token >= 0 && token < vocabulary_) << "token " << token;
    seen_[token / 32] |= uint32_t{1} << token % 32;
  }
  for (LogitEdit& edit : edits_) {
    uint32_t& word = seen_[edit.token / 32];
    const uint32_t bit = uint32_t{1} << edit.token % 32;
    if ((word & bit) != 0) edit.count = std::max(edit.count, 0);
    word &= ~bit;
  }
}

void Sampler::Observe(int32_t token) {
  ANNULUS_CHECK(token >= 0 && token < vocabulary_) << "token " << token;
  if (++generated_ == min_tokens_) AllowStops();
  if (output_.has_value() && output_status_.ok() && !EndsText(token)) {
    if (output_->thinks()) ++(ThinkingEnd().has_value() ? closed_ : thought_);
    const absl::StatusOr<bool> read = output_->Advance(token);
    if (!read.ok()) {
      output_status_ = OutputError(read.status());
    } else if (!*read) {
      output_status_ = absl::InternalError(
          absl::StrCat("token ", token, " does not keep to the output constraint"));
    } else if (!output_->thinks()) {
      closed_ = 0;
    }
    allowed_.clear();
  }
  if (!penalizes()) return;
  LogitEdit& edit = EditOf(token);
  edit.count = std::max(edit.count, 0) + 1;
  if (!seen_.empty()) seen_[token / 32] &= ~(uint32_t{1} << token % 32);
}

bool Sampler::EndsText(int32_t token) const {
  return std::binary_search(ending_ids_.begin(), ending_ids_.end(), token);
}

std::optional<int32_t> Sampler::ThinkingEnd() const {
  const Machine& machine = output_->machine();
  if (machine.thinking_tokens < 0 || thought_ < machine.thinking_tokens || !output_->thinks()) {
    return std::nullopt;
  }
  const auto next = static_cast<size_t>(closed_);
  if (next >= machine.thinking_end.size()) return std::nullopt;
  return machine.thinking_end[next];
}

void Sampler::FindAllowed() {
  if (!output_.has_value() || !output_status_.ok() || !allowed_.empty()) return;
  if (const std::optional<int32_t> end = ThinkingEnd(); end.has_value()) {
    allowed_.assign(static_cast<size_t>(SeenWords(vocabulary_)), 0);
    allowed_[static_cast<size_t>(*end) / 32] = uint32_t{1} << *end % 32;
    only_ = end;
    return;
  }
  const absl::StatusOr<TokenMask> mask = output_->Mask();
  if (!mask.ok()) {
    output_status_ = OutputError(mask.status());
    return;
  }
  allowed_.assign(mask->words.begin(), mask->words.end());
  only_ = mask->only;
  if (StopsAllowed()) return;
  // Few tokens end the text, so most masks are found to have another one at their first words.
  for (size_t word = 0; word < allowed_.size(); ++word) {
    for (uint32_t bits = allowed_[word]; bits != 0; bits &= bits - 1) {
      if (!EndsText(static_cast<int32_t>(32 * word) + std::countr_zero(bits))) return;
    }
  }
  output_ends_ = true;
  AllowStops();
}

SampleRow Sampler::RowAt(int64_t position) {
  FindAllowed();
  SampleRow row{temperature_, top_k_, top_p_, min_p_, 0, penalties_, edits_, seen_, allowed_};
  if (temperature_ > 0) row.uniform = UniformAt(seed_, static_cast<uint64_t>(position));
  return row;
}

absl::StatusOr<SampleResult> Sampler::ResultOf(int32_t token, int64_t position) const {
  if (!output_status_.ok()) return output_status_;
  if (token == kNoUsableLogit) {
    return absl::InternalError(absl::StrCat(
        "the model gave no usable logit for position ", position,
        ": all are NaN or -inf; the checkpoint is damaged, or there is a bug in the kernels"));
  }
  if (token == kAllExcluded && output_.has_value() && StopsAllowed()) {
    return absl::InternalError(absl::StrCat("the model gave no usable logit for position ",
                                            position,
                                            " to any token that the output constraint allows"));
  }
  if (token == kAllExcluded) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens: every token that the model allows at position ", position,
                     " ends the text, but ", generated_, " of at least ", min_tokens_,
                     " tokens are generated; lower min_tokens, or give fewer stop_token_ids"));
  }
  const bool forced = generated_ < std::ssize(forced_);
  return SampleResult{forced ? forced_[generated_] : token, std::nullopt};
}

absl::StatusOr<SampleResult> Sampler::Sample(std::span<const float> logits, int64_t position,
                                             std::span<Candidate> workspace) {
  ANNULUS_CHECK(logits.size() == static_cast<size_t>(vocabulary_));
  ANNULUS_CHECK(workspace.size() >= logits.size());
  ANNULUS_CHECK(position >= 0);
  const SampleRow row = RowAt(position);
  // A token without alternative needs no draw.
  const bool decided = !allowed_.empty() && only_.has_value();
  absl::StatusOr<SampleResult> result =
      ResultOf(decided ? *only_ : ChooseFrom(logits, row, workspace), position);
  if (result.ok() && logprobs_.has_value()) {
    result->logprob = LogprobOf(logits, result->token, *logprobs_);
  }
  return result;
}

}  // namespace annulus
