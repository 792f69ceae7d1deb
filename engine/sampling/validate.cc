#include "engine/sampling/validate.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/api/field_errors.h"
#include "engine/base/field_error.h"
#include "engine/text/utf8.h"

namespace annulus {
namespace {

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxStopTokenIds = 1024;
constexpr size_t kMaxBiases = 1024;

// "top_p is 1.5, allowed is (0, 1]": field, given, allowed.
template <typename Given>
absl::Status Refused(const std::string& field, const Given& given, absl::string_view allowed) {
  return FieldError(absl::StatusCode::kInvalidArgument, absl::StrCat("sampling.", field),
                    absl::StrCat(field, " is ", given, ", allowed is ", allowed));
}

// Written so that NaN, for which every comparison is false, is refused.
bool Within(float value, float low, float high) { return value >= low && value <= high; }

// Errors of fields.
using Violations = std::vector<absl::Status>;

void ValidateLengths(const SamplingParams& params, Violations& found) {
  if (params.max_tokens < 1) found.push_back(Refused("max_tokens", params.max_tokens, "1 or more"));
  if (params.min_tokens < 0 || params.min_tokens > std::max(1, params.max_tokens)) {
    found.push_back(Refused("min_tokens", params.min_tokens,
                            absl::StrCat("0 to max_tokens (", params.max_tokens, ")")));
  }
}

void ValidateFilters(const SamplingParams& params, Violations& found) {
  if (!Within(params.temperature, 0, 2)) {
    found.push_back(Refused("temperature", params.temperature, "0 (greedy) or up to 2"));
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    found.push_back(Refused("top_p", params.top_p, "above 0, up to 1 (off)"));
  }
  if (params.top_k < 0) found.push_back(Refused("top_k", params.top_k, "0 (off) or more"));
  if (!Within(params.min_p, 0, 1)) found.push_back(Refused("min_p", params.min_p, "0 (off) to 1"));
}

void ValidatePenalties(const SamplingParams& params, Violations& found) {
  if (!Within(params.frequency_penalty, -2, 2)) {
    found.push_back(Refused("frequency_penalty", params.frequency_penalty, "-2 to 2"));
  }
  if (!Within(params.presence_penalty, -2, 2)) {
    found.push_back(Refused("presence_penalty", params.presence_penalty, "-2 to 2"));
  }
  if (!(params.repetition_penalty > 0 && params.repetition_penalty <= 10)) {
    found.push_back(
        Refused("repetition_penalty", params.repetition_penalty, "above 0, up to 10; 1 is off"));
  }
}

void ValidateToken(const std::string& field, int32_t token, int32_t vocabulary, Violations& found) {
  if ((token >= 0 && token < vocabulary) || found.size() >= kMostFieldErrors) return;
  found.push_back(Refused(field, absl::StrCat("token id ", token),
                          absl::StrCat("0 to ", vocabulary - 1, " (the model's vocabulary)")));
}

void ValidateStopTexts(const std::vector<std::string>& stops, Violations& found) {
  for (size_t i = 0; i < stops.size(); ++i) {
    const size_t bytes = stops[i].size();
    if (bytes < 1 || bytes > kMaxStopBytes) {
      found.push_back(Refused(absl::StrCat("stop[", i, "]"), absl::StrCat(bytes, " bytes long"),
                              absl::StrCat("1 to ", kMaxStopBytes, " bytes")));
    }
    if (const std::optional<size_t> offset = FirstInvalidUtf8(stops[i])) {
      found.push_back(Refused(absl::StrCat("stop[", i, "]"),
                              absl::StrCat("no text from byte ", *offset), "valid UTF-8"));
    }
  }
}

// The members of a list that is too long are not looked at.
void ValidateStops(const SamplingParams& params, int32_t vocabulary, Violations& found) {
  if (params.stop.size() > kMaxStops) {
    found.push_back(Refused("stop", absl::StrCat(params.stop.size(), " strings"),
                            absl::StrCat("at most ", kMaxStops)));
  } else {
    ValidateStopTexts(params.stop, found);
  }
  if (params.stop_token_ids.size() > kMaxStopTokenIds) {
    found.push_back(Refused("stop_token_ids", absl::StrCat(params.stop_token_ids.size(), " ids"),
                            absl::StrCat("at most ", kMaxStopTokenIds)));
    return;
  }
  for (size_t i = 0; i < params.stop_token_ids.size(); ++i) {
    ValidateToken(absl::StrCat("stop_token_ids[", i, "]"), params.stop_token_ids[i], vocabulary,
                  found);
  }
}

void ValidateLogits(const SamplingParams& params, int32_t vocabulary, Violations& found) {
  if (params.logprobs.has_value() && (*params.logprobs < 0 || *params.logprobs > kMaxLogprobs)) {
    found.push_back(Refused("logprobs", *params.logprobs, absl::StrCat("0 to ", kMaxLogprobs)));
  }
  if (params.prompt_logprobs.has_value() &&
      (*params.prompt_logprobs < 0 || *params.prompt_logprobs > kMaxLogprobs)) {
    found.push_back(
        Refused("prompt_logprobs", *params.prompt_logprobs, absl::StrCat("0 to ", kMaxLogprobs)));
  }
  if (params.logit_bias.size() > kMaxBiases) {
    found.push_back(Refused("logit_bias", absl::StrCat(params.logit_bias.size(), " entries"),
                            absl::StrCat("at most ", kMaxBiases)));
    return;
  }
  for (const auto& [token, bias] : params.logit_bias) {
    ValidateToken("logit_bias", token, vocabulary, found);
    if (!Within(bias, -100, 100)) {
      found.push_back(Refused(absl::StrCat("logit_bias[", token, "]"), bias, "-100 to 100"));
    }
  }
}

}  // namespace

absl::Status ValidateSampling(const SamplingParams& params, int32_t vocabulary) {
  Violations found;
  ValidateLengths(params, found);
  ValidateFilters(params, found);
  ValidatePenalties(params, found);
  ValidateStops(params, vocabulary, found);
  ValidateLogits(params, vocabulary, found);
  return JoinFieldErrors(found);
}

}  // namespace annulus
