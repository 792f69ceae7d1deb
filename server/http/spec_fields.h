#ifndef ANNULUS_SERVER_HTTP_SPEC_FIELDS_H_
#define ANNULUS_SERVER_HTTP_SPEC_FIELDS_H_

// The fields that all APIs have under one name: those of GenerationSpec that no API lacks, and the
// object `annulus` with the rest.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "server/base/errors.h"
#include "server/http/json/json_reader.h"
#include "server/http/json/json_table.h"

namespace annulus::server {

// Memory of a message in a list, or of an entry of a map, with their objects.
inline constexpr size_t kMessageBytes = 512;
// Memory of a token id in a list.
inline constexpr size_t kIdBytes = 3 * sizeof(int32_t);

// The number of a field of 32 bits. INVALID_ARGUMENT if it is not one.
absl::StatusOr<int32_t> Int32Of(const JsonValue& value);

// Setters of one field each. Ranges are checked by the engine.
using SpecSetter = absl::Status (*)(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetModel(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetSeed(v1::GenerationSpec& spec, const JsonValue& value);
// Of an array nothing, as its entries come by themselves.
absl::Status AddStop(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status AddStopId(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status AddBias(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetReasoningBudget(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetIgnoreEos(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetPriority(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status AddDocument(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetFraming(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetSpeculation(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetIgnoreCache(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetPolicy(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetCoverage(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetTemplateOptions(v1::GenerationSpec& spec, const JsonValue& value);
// How much to think is a variable of the template, "reasoning_effort", as in vLLM. A variable of
// that name among the template options wins.
absl::Status CheckReasoningEffort(absl::string_view effort);
void AddReasoningEffort(v1::GenerationSpec& spec, absl::string_view effort);

// A setter of one field of SamplingParams.
template <auto kSet>
absl::Status SetFloat(v1::GenerationSpec& spec, const JsonValue& value) {
  (spec.mutable_sampling()->*kSet)(static_cast<float>(value.number));
  return absl::OkStatus();
}
template <auto kSet>
absl::Status SetInt32(v1::GenerationSpec& spec, const JsonValue& value) {
  const absl::StatusOr<int32_t> number = Int32Of(value);
  if (number.ok()) (spec.mutable_sampling()->*kSet)(*number);
  return number.status();
}

// The setter as a request's whose member `spec` it sets.
template <typename Request, SpecSetter kSet>
absl::Status OnSpec(Request& request, const JsonValue& value) {
  return kSet(request.spec, value);
}

template <typename Request, bool Request::*kFlag>
absl::Status SetFlag(Request& request, const JsonValue& value) {
  request.*kFlag = value.truth;
  return absl::OkStatus();
}

// A text as a parameter of a template.
template <size_t kSize>
struct Word {
  constexpr Word(const char (&word)[kSize]) { std::copy_n(word, kSize, text); }
  char text[kSize];
};
// For fields that may have one value only: `kUsual`, or another word for it.
template <typename Request, Word kUsual, Word... kAlso>
absl::Status MustBe(Request&, const JsonValue& value) {
  if (value.text == kUsual.text || (... || (value.text == kAlso.text))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteName(value.text), " is not supported: only \"", kUsual.text, "\""));
}

// For what this server lacks.
template <typename Request>
absl::Status MustBeFalse(Request&, const JsonValue& value) {
  return value.truth ? absl::InvalidArgumentError("this server does not support this; leave it out")
                     : absl::OkStatus();
}
template <typename Request>
absl::Status MustBeAbsent(Request&, const JsonValue&) {
  return absl::InvalidArgumentError("this server does not support this; leave it out");
}

// Starts a message of a conversation. INVALID_ARGUMENT if there are too many.
absl::Status StartMessage(v1::GenerationSpec& spec);
// The message that was started last.
v1::Message& LastMessage(v1::GenerationSpec& spec);
// Puts a system message with this text before all others; none if it is empty.
void PutSystemFirst(v1::GenerationSpec& spec, std::string text);
// The role that chat templates know: of OpenAI's "developer" the older name "system".
std::string RoleOf(absl::string_view role);
// Adds a line to a text.
void AddLine(absl::string_view line, std::string& text);
// Adds a part of the last message's content: parts are lines.
void AddText(v1::GenerationSpec& spec, absl::string_view text);

template <typename Request>
std::vector<JsonField<Request>> SpecFields() {
  using Value = JsonValue;
  using v1::SamplingParams;
  using P = SamplingParams;
  return {
      {"", Value::kObject},
      {"model", Value::kString, OnSpec<Request, SetModel>},
      {"temperature", Value::kNumber, OnSpec<Request, SetFloat<&P::set_temperature>>},
      {"top_p", Value::kNumber, OnSpec<Request, SetFloat<&P::set_top_p>>},
      {"min_p", Value::kNumber, OnSpec<Request, SetFloat<&P::set_min_p>>},
      {"top_k", Value::kNumber, OnSpec<Request, SetInt32<&P::set_top_k>>},
      {"frequency_penalty", Value::kNumber, OnSpec<Request, SetFloat<&P::set_frequency_penalty>>},
      {"presence_penalty", Value::kNumber, OnSpec<Request, SetFloat<&P::set_presence_penalty>>},
      {"repetition_penalty", Value::kNumber, OnSpec<Request, SetFloat<&P::set_repetition_penalty>>},
      {"min_tokens", Value::kNumber, OnSpec<Request, SetInt32<&P::set_min_tokens>>},
      {"seed", Value::kNumber, OnSpec<Request, SetSeed>},
      {"stop_token_ids", Value::kArray},
      {"stop_token_ids[]", Value::kNumber, OnSpec<Request, AddStopId>, false, kIdBytes},
      {"reasoning_budget", Value::kNumber, OnSpec<Request, SetReasoningBudget>},
      {"ignore_eos", Value::kBool, OnSpec<Request, SetIgnoreEos>},
      {"logit_bias", Value::kObject},
      {"logit_bias.*", Value::kNumber, OnSpec<Request, AddBias>, false, kMessageBytes},
      {"priority", Value::kNumber, OnSpec<Request, SetPriority>},
      {"annulus", Value::kObject},
      {"annulus.documents", Value::kArray},
      {"annulus.documents[]", Value::kString, OnSpec<Request, AddDocument>},
      {"annulus.framing", Value::kString, OnSpec<Request, SetFraming>},
      {"annulus.speculation", Value::kString, OnSpec<Request, SetSpeculation>},
      {"annulus.ignore_cache", Value::kBool, OnSpec<Request, SetIgnoreCache>},
      {"annulus.attention", Value::kObject},
      {"annulus.attention.policy", Value::kString, OnSpec<Request, SetPolicy>, false,
       kMessageBytes},
      {"annulus.attention.coverage", Value::kNumber, OnSpec<Request, SetCoverage>, false,
       kMessageBytes},
      {.path = "metadata", .kinds = Value::kObject, .skip = true},
  };
}

// The name that all APIs have for a field of GenerationSpec: "sampling.top_p" is "top_p".
std::string SpecFieldName(absl::string_view field);

// Replaces the names of GenerationSpec's fields in an error ("spec.sampling.top_p") by those that
// `name` has for them ("sampling.top_p"). Returns errors about other fields as they are.
absl::Status PlaceSpecFields(const absl::Status& status,
                             absl::FunctionRef<std::string(absl::string_view field)> name);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_SPEC_FIELDS_H_
