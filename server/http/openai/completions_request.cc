#include "server/http/openai/completions_request.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/json/json_table.h"
#include "server/http/openai/tools.h"
#include "server/http/spec_fields.h"
#include "server/work/count_limits.h"

namespace annulus::server {
namespace {

using Request = OpenAiRequest;
using Field = JsonField<Request>;
using Value = JsonValue;
using v1::SamplingParams;

constexpr uint8_t kBool = Value::kBool, kNumber = Value::kNumber, kString = Value::kString,
                  kArray = Value::kArray, kObject = Value::kObject, kText = Value::kText;
constexpr int kMostAnswers = 16;
// Of the template's variables: the text, and a larger one that also has the effort of reasoning.
constexpr size_t kOptionsCopies = 4;

absl::Status Bad(absl::string_view message) { return absl::InvalidArgumentError(message); }

template <int kOnly>
absl::Status MustBeNumber(Request&, const Value& value) {
  if (value.number == kOnly) return absl::OkStatus();
  return Bad(absl::StrCat("must be ", kOnly, " here, or left out"));
}

absl::Status SetChoices(Request& request, const Value& value) {
  ANNULUS_ASSIGN_OR_RETURN(request.choices, Int32Of(value));
  if (request.choices >= 1 && request.choices <= kMostAnswers) return absl::OkStatus();
  return Bad(absl::StrCat("must be 1 to ", kMostAnswers));
}

constexpr char kFormatSchema[] = "response_format.json_schema.schema";
constexpr char kOutputJson[] = "structured_outputs.json";
constexpr char kOutputRegex[] = "structured_outputs.regex";
constexpr char kOutputChoice[] = "structured_outputs.choice";

// The output constraint, which `field` gives and no other field may give too.
absl::StatusOr<v1::OutputConstraint*> OutputOf(Request& request, absl::string_view field) {
  if (!request.output_field.empty() && request.output_field != field) {
    return Bad(absl::StrCat("stands beside ", request.output_field, "; send one of them"));
  }
  request.output_field = std::string(field);
  return request.spec.mutable_output();
}

absl::Status SetFormat(Request& request, const Value& value) {
  request.response_format = std::string(value.text);
  if (value.text == "text" || value.text == "json_schema") return absl::OkStatus();
  if (value.text != "json_object") {
    return Bad(absl::StrCat(QuoteName(value.text),
                            " is not supported: only \"text\", \"json_object\" and "
                            "\"json_schema\""));
  }
  ANNULUS_ASSIGN_OR_RETURN(auto* const output, OutputOf(request, "response_format.type"));
  output->mutable_json_object();
  return absl::OkStatus();
}

template <const char* kField>
absl::Status SetSchema(Request& request, const Value& value) {
  ANNULUS_ASSIGN_OR_RETURN(auto* const output, OutputOf(request, kField));
  output->set_json_schema(std::string(value.text));
  return absl::OkStatus();
}

absl::Status SetRegex(Request& request, const Value& value) {
  ANNULUS_ASSIGN_OR_RETURN(auto* const output, OutputOf(request, kOutputRegex));
  output->set_regex(std::string(value.text));
  return absl::OkStatus();
}

absl::Status BeginChoices(Request& request, const Value&) {
  ANNULUS_ASSIGN_OR_RETURN(auto* const output, OutputOf(request, kOutputChoice));
  output->mutable_choices();
  return absl::OkStatus();
}

absl::Status AddChoice(Request& request, const Value& value) {
  auto& texts = *request.spec.mutable_output()->mutable_choices()->mutable_texts();
  if (texts.size() >= kMostChoices) {
    return Bad(absl::StrCat("at most ", kMostChoices, " choices are allowed"));
  }
  texts.Add(std::string(value.text));
  return absl::OkStatus();
}

absl::Status CheckFormat(const Request& request) {
  const bool has_schema = request.output_field == kFormatSchema;
  if ((request.response_format == "json_schema") == has_schema) return absl::OkStatus();
  if (has_schema) {
    return FieldError("response_format.type", "must be \"json_schema\" beside a schema");
  }
  return FieldError("response_format.json_schema",
                    "is required with this type: {\"name\": \"..\", \"schema\": {..}}");
}

// Fields of both APIs. Those without effect on the answer are skipped.
std::vector<Field> CommonFields() {
  std::vector<Field> fields = SpecFields<Request>();
  const std::vector<Field> own = {
      {"max_tokens", kNumber, OnSpec<Request, SetInt32<&SamplingParams::set_max_tokens>>},
      {"stop", uint8_t(kString | kArray), OnSpec<Request, AddStop>},
      {"stop[]", kString, OnSpec<Request, AddStop>},
      {"n", kNumber, SetChoices},
      {"stream", kBool, SetFlag<Request, &Request::stream>},
      {"stream_options", kObject},
      {"stream_options.include_usage", kBool, SetFlag<Request, &Request::include_usage>},
      {"stream_options.continuous_usage_stats", kBool,
       SetFlag<Request, &Request::continuous_usage>},
      {"response_format", kObject},
      {"response_format.type", kString, SetFormat, false, kMessageBytes},
      {"response_format.json_schema", kObject},
      {.path = "response_format.json_schema.name", .kinds = kString, .skip = true},
      {.path = "response_format.json_schema.description", .kinds = kString, .skip = true},
      {.path = "response_format.json_schema.strict", .kinds = kBool, .skip = true},
      {kFormatSchema, kText, SetSchema<kFormatSchema>, false, kMessageBytes},
      {"structured_outputs", kObject},
      {kOutputJson, uint8_t(kString | kText), SetSchema<kOutputJson>, false, kMessageBytes},
      {kOutputRegex, kString, SetRegex, false, kMessageBytes},
      {kOutputChoice, kArray, BeginChoices, false, kMessageBytes},
      {"structured_outputs.choice[]", kString, AddChoice, false, kMessageBytes},
      {.path = "user", .kinds = kString, .skip = true},
      {"store", kBool, MustBeFalse<Request>},
  };
  fields.insert(fields.end(), own.begin(), own.end());
  return fields;
}

absl::Status AddMessage(Request& request, const Value&) { return StartMessage(request.spec); }

absl::Status SetContent(Request& request, const Value& value) {
  LastMessage(request.spec).set_content(TakeText(value));
  return absl::OkStatus();
}

absl::Status AddContentText(Request& request, const Value& value) {
  AddText(request.spec, value.text);
  return absl::OkStatus();
}

absl::Status CheckPartType(Request&, const Value& value) {
  if (value.text == "text" || value.text == "file") return absl::OkStatus();
  return Bad(absl::StrCat(QuoteName(value.text), " is not supported: only \"text\" and \"file\""));
}

absl::Status AddFile(Request& request, const Value&) {
  if (request.documents.size() == kMostDocuments) {
    return Bad(absl::StrCat("at most ", kMostDocuments, " documents are allowed"));
  }
  const int message = request.spec.messages().messages_size() - 1;
  request.documents.push_back({.field = absl::StrCat("messages[", message, "].content")});
  return absl::OkStatus();
}

template <std::string AttachedDocument::*kMember>
absl::Status SetFile(Request& request, const Value& value) {
  request.documents.back().*kMember = std::string(value.text);
  return absl::OkStatus();
}

absl::Status SetFileData(Request& request, const Value& value) {
  return ReadFileData(value.text, request.documents.back().text);
}

template <auto kSet>
absl::Status SetMessageText(Request& request, const Value& value) {
  kSet(LastMessage(request.spec), std::string(value.text));
  return absl::OkStatus();
}

// Templates take an empty list for an answer with calls; clients mean one without.
absl::Status SetMessageCalls(Request& request, const Value& value) {
  const bool any = absl::StrContains(value.text, "{");
  if (any) LastMessage(request.spec).set_tool_calls(std::string(value.text));
  return absl::OkStatus();
}

absl::Status SetAddGenerationPrompt(Request& request, const Value& value) {
  request.spec.mutable_messages()->set_add_generation_prompt(value.truth);
  return absl::OkStatus();
}

absl::Status SetContinueFinalMessage(Request& request, const Value& value) {
  request.spec.mutable_messages()->set_continue_final_message(value.truth);
  return absl::OkStatus();
}

absl::Status SetMaxCompletionTokens(Request& request, const Value& value) {
  request.has_max_completion_tokens = true;
  return SetInt32<&SamplingParams::set_max_tokens>(request.spec, value);
}

absl::Status ReadTools(Request& request, const Value& value) {
  return SetTools(value.text, request.spec);
}

absl::Status SetChatLogprobs(Request& request, const Value& value) {
  request.logprobs = value.truth;
  return absl::OkStatus();
}

absl::Status SetTopLogprobs(Request& request, const Value& value) {
  ANNULUS_ASSIGN_OR_RETURN(request.top_logprobs, Int32Of(value));
  return absl::OkStatus();
}

constexpr auto SetReasoning =
    SetMessageText<[](v1::Message& m, std::string text) { m.set_reasoning(std::move(text)); }>;

absl::Status SetEffort(Request& request, const Value& value) {
  request.reasoning_effort = std::string(value.text);
  return CheckReasoningEffort(value.text);
}

// A conversation, and how it becomes a prompt.
std::vector<Field> MessageFields() {
  return {
      {"messages", kArray},
      {"messages[]", kObject, AddMessage, false, kMessageBytes},
      {"messages[].role", kString,
       SetMessageText<[](v1::Message& m, std::string text) { m.set_role(RoleOf(text)); }>},
      {"messages[].name", kString,
       SetMessageText<[](v1::Message& m, std::string text) { m.set_name(std::move(text)); }>},
      {"messages[].tool_call_id", kString, SetMessageText<[](v1::Message& m, std::string text) {
         m.set_tool_call_id(std::move(text));
       }>},
      {"messages[].reasoning_content", kString, SetReasoning},
      {"messages[].reasoning", kString, SetReasoning},
      {"messages[].content", uint8_t(kString | kArray), SetContent},
      {"messages[].content[]", kObject},
      {"messages[].content[].type", kString, CheckPartType},
      {"messages[].content[].text", kString, AddContentText, false, kMessageBytes, 3},
      // What answers of this API have, and clients send back.
      {"messages[].refusal", Value::kNull},
      {"messages[].annotations", kArray},
      {"messages[].tool_calls", kText, SetMessageCalls},
      {"messages[].function_call", Value::kNull},
      {"messages[].audio", Value::kNull},
      {"chat_template_kwargs", kText, OnSpec<Request, SetTemplateOptions>, false, kMessageBytes,
       kOptionsCopies},
      {"add_generation_prompt", kBool, SetAddGenerationPrompt, false, kMessageBytes},
      {"continue_final_message", kBool, SetContinueFinalMessage, false, kMessageBytes},
  };
}

std::vector<Field> ChatFields() {
  std::vector<Field> fields = CommonFields();
  const std::vector<Field> messages = MessageFields();
  fields.insert(fields.end(), messages.begin(), messages.end());
  const std::vector<Field> own = {
      {"messages[].content[].file", kObject, AddFile, false, kMessageBytes},
      {"messages[].content[].file.file_id", kString, SetFile<&AttachedDocument::name>, false, 96,
       2},
      {"messages[].content[].file.filename", kString, SetFile<&AttachedDocument::title>, false, 96,
       2},
      {"messages[].content[].file.file_data", kString, SetFileData, false, kMessageBytes, 3},
      {"max_completion_tokens", kNumber, SetMaxCompletionTokens},
      {"logprobs", kBool, SetChatLogprobs},
      {"top_logprobs", kNumber, SetTopLogprobs},
      {"modalities", kArray},
      {"modalities[]", kString, MustBe<Request, "text">},
      {"tools", kText, ReadTools, false, kMessageBytes},
      {"tool_choice", uint8_t(kString | kText), OnSpec<Request, SetToolChoice>, false,
       kMessageBytes, kToolChoiceFactor},
      {"parallel_tool_calls", kBool, OnSpec<Request, SetParallelCalls>},
      {"reasoning_effort", kString, SetEffort, false, kMessageBytes},
      {"service_tier", kString, MustBe<Request, "auto">},
      {.path = "safety_identifier", .kinds = kString, .skip = true},
      {.path = "prompt_cache_key", .kinds = kString, .skip = true},
  };
  fields.insert(fields.end(), own.begin(), own.end());
  return fields;
}

absl::Status CountPrompt(Request& request) {
  if (++request.prompts == 1) return absl::OkStatus();
  return Bad("one prompt is allowed in a request; send the others as separate requests");
}

absl::Status SetPrompt(Request& request, const Value& value) {
  if (value.kind == kArray) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(CountPrompt(request));
  if (request.spec.has_messages()) return Bad("stands beside messages; send one of them");
  request.spec.set_text(TakeText(value));
  return absl::OkStatus();
}

absl::Status AddPromptId(Request& request, const Value& value) {
  ANNULUS_ASSIGN_OR_RETURN(const int32_t id, Int32Of(value));
  request.spec.mutable_token_ids()->add_ids(id);
  return absl::OkStatus();
}

// An entry of a prompt: a text, an array of ids, or one id.
absl::Status AddPrompt(Request& request, const Value& value) {
  if (value.kind == kString) return SetPrompt(request, value);
  if (value.kind == kArray) return CountPrompt(request);
  if (request.prompts == 0) ANNULUS_RETURN_IF_ERROR(CountPrompt(request));
  if (request.spec.has_text()) return Bad("strings and token ids are mixed");
  return AddPromptId(request, value);
}

std::vector<Field> CompletionFields() {
  std::vector<Field> fields = CommonFields();
  const std::vector<Field> own = {
      {"prompt", uint8_t(kString | kArray), SetPrompt},
      {"prompt[]", uint8_t(kString | kNumber | kArray), AddPrompt, false, kIdBytes + 64},
      {"prompt[][]", kNumber, AddPromptId, false, kIdBytes},
      {"logprobs", kNumber, OnSpec<Request, SetInt32<&SamplingParams::set_logprobs>>},
      {"echo", kBool, SetFlag<Request, &Request::echo>},
      {"suffix", Value::kNull},
      {"best_of", kNumber, MustBeNumber<1>},
  };
  fields.insert(fields.end(), own.begin(), own.end());
  return fields;
}

std::vector<Field> TokenizeFields() {
  std::vector<Field> fields = MessageFields();
  const std::vector<Field> own = {
      {"", kObject},
      {"model", kString, OnSpec<Request, SetModel>},
      {"prompt", kString, SetPrompt},
      {"add_special_tokens", kBool,
       [](Request& request, const Value& value) {
         request.add_special = value.truth;
         return absl::OkStatus();
       }},
      {"return_token_strs", kBool, MustBeFalse<Request>},
  };
  fields.insert(fields.end(), own.begin(), own.end());
  return fields;
}

std::vector<Field> DetokenizeFields() {
  return {
      {"", kObject},
      {"model", kString, OnSpec<Request, SetModel>},
      {"tokens", kArray},
      {"tokens[]", kNumber, AddPromptId, false, kIdBytes},
  };
}

// Checks what concerns several fields.
absl::Status FinishChat(Request& request) {
  if (!request.spec.has_messages() || request.spec.messages().messages().empty()) {
    return FieldError("messages", "is required: 1 to 10000 messages");
  }
  const bool wanted = request.logprobs.value_or(false);
  if (request.top_logprobs.has_value() && !wanted) {
    return FieldError("top_logprobs", "needs logprobs: true");
  }
  if (wanted) request.spec.mutable_sampling()->set_logprobs(request.top_logprobs.value_or(0));
  if (!request.reasoning_effort.empty()) AddReasoningEffort(request.spec, request.reasoning_effort);
  return absl::OkStatus();
}

// Log probabilities of an answer that begins with the prompt are also the prompt's.
absl::Status FinishEcho(Request& request) {
  if (!request.echo) return absl::OkStatus();
  if (!request.spec.documents().empty()) {
    return FieldError("echo", "is not possible with annulus.documents; leave one of them out");
  }
  if (!request.spec.sampling().has_logprobs()) return absl::OkStatus();
  if (request.choices > 1) return FieldError("n", "must be 1 with echo and logprobs");
  request.spec.mutable_sampling()->set_prompt_logprobs(request.spec.sampling().logprobs());
  return absl::OkStatus();
}

absl::Status CheckStreamOptions(const Request& request) {
  if (request.stream || !(request.include_usage || request.continuous_usage)) {
    return absl::OkStatus();
  }
  return FieldError("stream_options", "needs stream: true");
}

// The name that a field of GenerationSpec has here.
std::string OpenAiName(absl::string_view field, const OpenAiRequest& request) {
  if (field == "text" || absl::StartsWith(field, "token_ids")) return "prompt";
  if (absl::ConsumePrefix(&field, "sampling.")) {
    if (field == "max_tokens" && request.has_max_completion_tokens) return "max_completion_tokens";
    if (field == "logprobs" && request.top_logprobs.has_value()) return "top_logprobs";
    return field == "prompt_logprobs" ? "logprobs" : std::string(field);
  }
  if (absl::StartsWith(field, "output")) return request.output_field;
  if (absl::StartsWith(field, "tool_choice.")) return "tool_choice";
  return SpecFieldName(field);
}

absl::Status Read(const std::vector<Field>& fields, const std::deque<std::string>& body,
                  Request& request, CallMemory& memory, const CancelFlag& cancel) {
  JsonTable<Request> table(fields, request);
  ANNULUS_RETURN_IF_ERROR(ReadJson(body, table, memory, cancel));
  ANNULUS_RETURN_IF_ERROR(CheckFormat(request));
  return CheckStreamOptions(request);
}

}  // namespace

absl::Status ReadChatRequest(const std::deque<std::string>& body, OpenAiRequest& request,
                             CallMemory& memory, const CancelFlag& cancel) {
  static const auto& fields = *new std::vector<Field>(ChatFields());
  ANNULUS_RETURN_IF_ERROR(Read(fields, body, request, memory, cancel));
  return FinishChat(request);
}

absl::Status ReadCompletionRequest(const std::deque<std::string>& body, OpenAiRequest& request,
                                   CallMemory& memory, const CancelFlag& cancel) {
  static const auto& fields = *new std::vector<Field>(CompletionFields());
  ANNULUS_RETURN_IF_ERROR(Read(fields, body, request, memory, cancel));
  if (request.prompts == 0) return FieldError("prompt", "is required: a text, or token ids");
  return FinishEcho(request);
}

absl::Status ReadTokenizeRequest(const std::deque<std::string>& body, OpenAiRequest& request,
                                 CallMemory& memory, const CancelFlag& cancel) {
  static const auto& fields = *new std::vector<Field>(TokenizeFields());
  ANNULUS_RETURN_IF_ERROR(Read(fields, body, request, memory, cancel));
  if (request.spec.has_messages() == (request.prompts == 1)) {
    return FieldError("prompt", "send either prompt, a text, or messages");
  }
  if (request.spec.has_messages() && request.add_special.value_or(false)) {
    return FieldError("add_special_tokens", "the chat template writes special tokens itself");
  }
  return absl::OkStatus();
}

absl::Status ReadDetokenizeRequest(const std::deque<std::string>& body, OpenAiRequest& request,
                                   CallMemory& memory, const CancelFlag& cancel) {
  static const auto& fields = *new std::vector<Field>(DetokenizeFields());
  return Read(fields, body, request, memory, cancel);
}

absl::Status PlaceOpenAiField(absl::Status status, const OpenAiRequest& request) {
  return PlaceSpecFields(
      status, [&request](absl::string_view field) { return OpenAiName(field, request); });
}

}  // namespace annulus::server
