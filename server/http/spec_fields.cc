#include "server/http/spec_fields.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/json/json_text.h"
#include "server/work/count_limits.h"

namespace annulus::server {
absl::StatusOr<int32_t> Int32Of(const JsonValue& value) {
  using Limits = std::numeric_limits<int32_t>;
  if (value.integer && *value.integer >= Limits::min() && *value.integer <= Limits::max()) {
    return static_cast<int32_t>(*value.integer);
  }
  return absl::InvalidArgumentError("must be a whole number of at most 31 bits");
}

absl::Status SetModel(v1::GenerationSpec& spec, const JsonValue& value) {
  spec.set_model(std::string(value.text));
  return absl::OkStatus();
}

absl::Status SetSeed(v1::GenerationSpec& spec, const JsonValue& value) {
  // OpenAI's seeds are signed.
  if (!value.natural && !value.integer)
    return absl::InvalidArgumentError("must be a whole number of at most 64 bits");
  spec.mutable_sampling()->set_seed(value.natural ? *value.natural
                                                  : static_cast<uint64_t>(*value.integer));
  return absl::OkStatus();
}

absl::Status AddStop(v1::GenerationSpec& spec, const JsonValue& value) {
  if (value.kind == JsonValue::kArray) return absl::OkStatus();
  v1::SamplingParams& sampling = *spec.mutable_sampling();
  if (sampling.stop_size() >= kMostStops) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kMostStops, " stop texts are allowed"));
  }
  sampling.add_stop(value.text.data(), value.text.size());
  return absl::OkStatus();
}

absl::Status AddStopId(v1::GenerationSpec& spec, const JsonValue& value) {
  v1::SamplingParams& sampling = *spec.mutable_sampling();
  if (sampling.stop_token_ids_size() >= kMostStopTokenIds) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kMostStopTokenIds, " ids are allowed"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const int32_t id, Int32Of(value));
  sampling.add_stop_token_ids(id);
  return absl::OkStatus();
}

absl::Status AddBias(v1::GenerationSpec& spec, const JsonValue& value) {
  auto& biases = *spec.mutable_sampling()->mutable_logit_bias();
  int32_t id = 0;
  if (!absl::SimpleAtoi(value.key, &id))
    return absl::InvalidArgumentError("a key of logit_bias is a token id");
  if (static_cast<int>(biases.size()) >= kMostBiases) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kMostBiases, " entries are allowed"));
  }
  biases[id] = static_cast<float>(value.number);
  return absl::OkStatus();
}

absl::Status SetIgnoreEos(v1::GenerationSpec& spec, const JsonValue& value) {
  spec.mutable_sampling()->set_ignore_eos(value.truth);
  return absl::OkStatus();
}

absl::Status SetPriority(v1::GenerationSpec& spec, const JsonValue& value) {
  ANNULUS_ASSIGN_OR_RETURN(const int32_t priority, Int32Of(value));
  spec.set_priority(priority);
  return absl::OkStatus();
}

absl::Status AddDocument(v1::GenerationSpec& spec, const JsonValue& value) {
  if (spec.documents_size() >= kMostDocuments) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kMostDocuments, " documents are allowed"));
  }
  spec.add_documents(std::string(value.text));
  return absl::OkStatus();
}

absl::Status SetFraming(v1::GenerationSpec& spec, const JsonValue& value) {
  if (value.text != "auto" && value.text != "none")
    return absl::InvalidArgumentError("must be \"auto\" or \"none\"");
  spec.set_framing(value.text == "auto" ? v1::FRAMING_AUTO : v1::FRAMING_NONE);
  return absl::OkStatus();
}

absl::Status SetSpeculation(v1::GenerationSpec& spec, const JsonValue& value) {
  if (value.text != "off" && value.text != "ngram")
    return absl::InvalidArgumentError("must be \"off\" or \"ngram\"");
  spec.set_speculation(value.text == "off" ? v1::SPECULATION_OFF : v1::SPECULATION_NGRAM);
  return absl::OkStatus();
}

absl::Status SetReasoningBudget(v1::GenerationSpec& spec, const JsonValue& value) {
  const absl::StatusOr<int32_t> budget = Int32Of(value);
  if (budget.ok()) spec.set_reasoning_budget(*budget);
  return budget.status();
}

absl::Status SetIgnoreCache(v1::GenerationSpec& spec, const JsonValue& value) {
  spec.set_ignore_cache(value.truth);
  return absl::OkStatus();
}

absl::Status SetPolicy(v1::GenerationSpec& spec, const JsonValue& value) {
  spec.mutable_attention()->set_policy(std::string(value.text));
  return absl::OkStatus();
}

absl::Status SetCoverage(v1::GenerationSpec& spec, const JsonValue& value) {
  spec.mutable_attention()->set_coverage(value.number);
  return absl::OkStatus();
}

absl::Status SetTemplateOptions(v1::GenerationSpec& spec, const JsonValue& value) {
  if (value.text.empty() || value.text[0] != '{')
    return absl::InvalidArgumentError("must be an object");
  spec.mutable_messages()->set_template_options(std::string(value.text));
  return absl::OkStatus();
}

absl::Status CheckReasoningEffort(absl::string_view effort) {
  constexpr size_t kLongestEffort = 32;
  if (!effort.empty() && effort.size() <= kLongestEffort) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("has ", effort.size(), " bytes; allowed are 1 to ", kLongestEffort));
}

void AddReasoningEffort(v1::GenerationSpec& spec, absl::string_view effort) {
  std::string& options = *spec.mutable_messages()->mutable_template_options();
  if (options.empty()) options = "{}";
  const bool alone = options[options.find_first_not_of(" \t\r\n", 1)] == '}';
  options.insert(1, absl::StrCat("\"reasoning_effort\":", JsonString(effort), alone ? "" : ","));
}

absl::Status StartMessage(v1::GenerationSpec& spec) {
  if (spec.messages().messages_size() >= kMostMessages) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kMostMessages, " messages are allowed"));
  }
  spec.mutable_messages()->add_messages();
  return absl::OkStatus();
}

v1::Message& LastMessage(v1::GenerationSpec& spec) {
  auto& messages = *spec.mutable_messages()->mutable_messages();
  return *messages.Mutable(messages.size() - 1);
}

void PutSystemFirst(v1::GenerationSpec& spec, std::string text) {
  if (text.empty()) return;
  auto& messages = *spec.mutable_messages()->mutable_messages();
  v1::Message& system = *messages.Add();
  system.set_role("system");
  system.set_content(std::move(text));
  std::rotate(messages.pointer_begin(), messages.pointer_end() - 1, messages.pointer_end());
}

std::string RoleOf(absl::string_view role) {
  return std::string(role == "developer" ? "system" : role);
}

void AddLine(absl::string_view line, std::string& text) {
  if (!text.empty()) text.push_back('\n');
  text.append(line.data(), line.size());
}

void AddText(v1::GenerationSpec& spec, absl::string_view text) {
  AddLine(text, *LastMessage(spec).mutable_content());
}

std::string SpecFieldName(absl::string_view field) {
  if (absl::ConsumePrefix(&field, "sampling.")) return std::string(field);
  if (absl::ConsumePrefix(&field, "messages.template_options")) return "chat_template_kwargs";
  absl::ConsumePrefix(&field, "messages.");
  for (const absl::string_view own :
       {"documents", "framing", "attention", "speculation", "evidence"}) {
    if (absl::StartsWith(field, own)) return absl::StrCat("annulus.", field);
  }
  return field == "request_id" ? "Idempotency-Key" : std::string(field);
}

absl::Status PlaceSpecFields(const absl::Status& status,
                             absl::FunctionRef<std::string(absl::string_view field)> name) {
  return MoveFields(status, [&name](absl::string_view field) {
    const absl::string_view whole = field;
    return absl::ConsumePrefix(&field, "spec.") ? name(field) : std::string(whole);
  });
}

}  // namespace annulus::server
