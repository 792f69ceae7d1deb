#include "server/http/openai/responses_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/json/json_table.h"
#include "server/http/openai/tools.h"
#include "server/http/spec_fields.h"
#include "server/http/tool_definitions.h"
#include "server/work/count_limits.h"

namespace annulus::server {
namespace {

using ResponsesField = JsonField<ResponsesRequest>;

// Copies of a part's text that exist at a time: in the part, the item and the message, and while
// one of them doubles; of a file in base64 also its text.
constexpr size_t kResponsesCopies = 6;
// An item with a part, a document, and their places.
constexpr size_t kResponsesItemBytes = 3 * kMessageBytes;
constexpr size_t kMostIgnored = 32;
constexpr size_t kLongestTool = 64;

constexpr std::array<absl::string_view, 3> kResponsesTexts = {"input_text", "output_text", "text"};

absl::Status FinishPart(ResponsesRequest& request) {
  ResponsesPart part = std::exchange(request.part, ResponsesPart());
  if (part.field.empty()) return absl::OkStatus();
  const bool is_text =
      std::find(kResponsesTexts.begin(), kResponsesTexts.end(), part.type) != kResponsesTexts.end();
  if (is_text) {
    AddLine(part.text, request.item.text);
  } else if (part.type == "reasoning_text") {
    request.item.reasoning += part.text;
  } else if (part.type == "input_file") {
    AttachedDocument document{
        .field = part.field, .name = std::move(part.file_id), .title = std::move(part.filename)};
    if (!part.file_data.empty()) {
      const absl::Status read = ReadFileData(part.file_data, document.text);
      if (!read.ok()) return WithField(read, absl::StrCat(part.field, ".file_data"));
    }
    request.documents.push_back(std::move(document));
  } else {
    return FieldError(absl::StrCat(part.field, ".type"),
                      absl::StrCat(QuoteName(part.type), " is not supported"));
  }
  return absl::OkStatus();
}

// Starts a message of the assistant, with the reasoning before it.
absl::Status StartAnswer(ResponsesRequest& request) {
  ANNULUS_RETURN_IF_ERROR(StartMessage(request.spec));
  v1::Message& message = LastMessage(request.spec);
  message.set_role("assistant");
  std::string reasoning = std::exchange(request.reasoning, "");
  if (!reasoning.empty()) message.set_reasoning(std::move(reasoning));
  return absl::OkStatus();
}

// Chat templates want a text and the calls behind it as one message.
absl::Status AddCall(ResponsesRequest& request, const ResponsesItem& item) {
  if (item.name.empty()) return FieldError(absl::StrCat(item.field, ".name"), "is required");
  const bool joins = !request.spec.messages().messages().empty() && request.reasoning.empty() &&
                     LastMessage(request.spec).role() == "assistant";
  const absl::Status started = joins ? absl::OkStatus() : StartAnswer(request);
  if (!started.ok()) return WithField(started, item.field);
  AddToolCall(item.call_id, item.name, item.arguments, LastMessage(request.spec));
  return absl::OkStatus();
}

absl::Status AddCallOutput(ResponsesRequest& request, ResponsesItem item) {
  const absl::Status started = StartMessage(request.spec);
  if (!started.ok()) return WithField(started, item.field);
  v1::Message& message = LastMessage(request.spec);
  message.set_role("tool");
  message.set_tool_call_id(std::move(item.call_id));
  message.set_content(std::move(item.text));
  return absl::OkStatus();
}

absl::Status FinishItem(ResponsesRequest& request) {
  ANNULUS_RETURN_IF_ERROR(FinishPart(request));
  ResponsesItem item = std::exchange(request.item, ResponsesItem());
  if (item.field.empty()) return absl::OkStatus();
  if (item.type == "reasoning") {
    request.reasoning += item.reasoning;
    return absl::OkStatus();
  }
  if (item.type == "function_call") return AddCall(request, item);
  if (item.type == "function_call_output") return AddCallOutput(request, std::move(item));
  if (!item.type.empty() && item.type != "message") {
    return FieldError(absl::StrCat(item.field, ".type"),
                      absl::StrCat(QuoteName(item.type), " is not supported"));
  }
  if (item.role.empty()) return FieldError(absl::StrCat(item.field, ".role"), "is required");
  const bool answers = item.role == "assistant";
  const absl::Status started = answers ? StartAnswer(request) : StartMessage(request.spec);
  if (!started.ok()) return WithField(started, item.field);
  LastMessage(request.spec).set_role(RoleOf(item.role));
  LastMessage(request.spec).set_content(std::move(item.text));
  return absl::OkStatus();
}

absl::Status SetInput(ResponsesRequest& request, const JsonValue& value) {
  if (value.kind == JsonValue::kArray) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(StartMessage(request.spec));
  LastMessage(request.spec).set_role("user");
  LastMessage(request.spec).set_content(TakeText(value));
  return absl::OkStatus();
}

absl::Status AddItem(ResponsesRequest& request, const JsonValue&) {
  ANNULUS_RETURN_IF_ERROR(FinishItem(request));
  request.item.field = absl::StrCat("input[", request.items++, "]");
  return absl::OkStatus();
}

absl::Status AddPart(ResponsesRequest& request, const JsonValue&) {
  ANNULUS_RETURN_IF_ERROR(FinishPart(request));
  if (request.documents.size() > kMostDocuments) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kMostDocuments, " documents are allowed"));
  }
  request.part.field = absl::StrCat(request.item.field, ".content[", request.item.parts++, "]");
  return absl::OkStatus();
}

absl::Status SetContent(ResponsesRequest& request, const JsonValue& value) {
  if (value.kind == JsonValue::kString) request.item.text = std::string(value.text);
  return absl::OkStatus();
}

template <std::string ResponsesItem::*kMember>
absl::Status SetItem(ResponsesRequest& request, const JsonValue& value) {
  request.item.*kMember = std::string(value.text);
  return absl::OkStatus();
}

template <std::string ResponsesPart::*kMember>
absl::Status SetPart(ResponsesRequest& request, const JsonValue& value) {
  request.part.*kMember = std::string(value.text);
  return absl::OkStatus();
}

absl::Status SetInstructions(ResponsesRequest& request, const JsonValue& value) {
  request.instructions = std::string(value.text);
  return absl::OkStatus();
}

absl::Status SetTopLogprobs(ResponsesRequest& request, const JsonValue& value) {
  ANNULUS_ASSIGN_OR_RETURN(request.top_logprobs, Int32Of(value));
  return absl::OkStatus();
}

// All others ask for more about tools that a server runs itself, images and encrypted reasoning,
// which the answers of this one do not have.
absl::Status AddInclude(ResponsesRequest& request, const JsonValue& value) {
  if (value.text == "message.output_text.logprobs") request.wants_logprobs = true;
  return absl::OkStatus();
}

absl::Status SetEvidence(ResponsesRequest& request, const JsonValue& value) {
  request.spec.set_evidence(value.truth);
  return absl::OkStatus();
}

// A tool that the model cannot call here is left out, and the answer says so.
absl::StatusOr<bool> NoteTool(absl::string_view type, std::vector<std::string>& ignored) {
  if (type == "function") return true;
  const bool is_name = !type.empty() && type.size() <= kLongestTool && type != "custom" &&
                       std::all_of(type.begin(), type.end(), [](char c) {
                         return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
                       });
  if (!is_name)
    return absl::InvalidArgumentError(absl::StrCat(QuoteName(type), " is not supported"));
  if (std::find(ignored.begin(), ignored.end(), type) != ignored.end()) return false;
  if (ignored.size() == kMostIgnored) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kMostIgnored, " kinds of other tools are allowed"));
  }
  ignored.emplace_back(type);
  return false;
}

absl::Status ReadTools(ResponsesRequest& request, const JsonValue& value) {
  return SetFlatTools(
      value.text, "parameters",
      [&request](absl::string_view type) { return NoteTool(type, request.ignored_tools); },
      request.spec);
}

absl::Status SetFormat(ResponsesRequest& request, const JsonValue& value) {
  request.format = std::string(value.text);
  if (value.text == "json_object") {
    request.spec.mutable_output()->mutable_json_object();
  } else if (value.text != "text" && value.text != "json_schema") {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteName(value.text),
                     " is not supported: only \"text\", \"json_object\" and \"json_schema\""));
  }
  return absl::OkStatus();
}

absl::Status SetSchema(ResponsesRequest& request, const JsonValue& value) {
  request.schema = std::string(value.text);
  return absl::OkStatus();
}

absl::Status FinishFormat(ResponsesRequest& request) {
  if ((request.format == "json_schema") != !request.schema.empty()) {
    return FieldError(request.schema.empty() ? "text.format.schema" : "text.format.type",
                      "a schema and the type \"json_schema\" need each other");
  }
  if (!request.schema.empty()) {
    request.spec.mutable_output()->set_json_schema(std::move(request.schema));
  }
  return absl::OkStatus();
}

absl::Status SetEffort(ResponsesRequest& request, const JsonValue& value) {
  ANNULUS_RETURN_IF_ERROR(CheckReasoningEffort(value.text));
  AddReasoningEffort(request.spec, value.text);
  return absl::OkStatus();
}

// The output of a call: a text, or parts of one.
absl::Status SetOutput(ResponsesRequest& request, const JsonValue& value) {
  if (value.kind == JsonValue::kString) request.item.text = std::string(value.text);
  return absl::OkStatus();
}

absl::Status AddOutputText(ResponsesRequest& request, const JsonValue& value) {
  AddLine(value.text, request.item.text);
  return absl::OkStatus();
}

absl::Status NoState(ResponsesRequest&, const JsonValue&) {
  return absl::InvalidArgumentError(
      "this server keeps no state: send the whole conversation as input");
}

std::vector<ResponsesField> InputFields() {
  using enum JsonValue::Kind;
  return {
      {"input", uint8_t(kString | kArray), SetInput, false, kResponsesItemBytes, 2},
      {"input[]", kObject, AddItem, false, kResponsesItemBytes},
      {"input[].type", kString, SetItem<&ResponsesItem::type>},
      {"input[].role", kString, SetItem<&ResponsesItem::role>},
      {"input[].content", uint8_t(kString | kArray), SetContent, false, kResponsesItemBytes,
       kResponsesCopies},
      {"input[].content[]", kObject, AddPart, false, kResponsesItemBytes},
      {"input[].content[].type", kString, SetPart<&ResponsesPart::type>},
      {"input[].content[].text", kString, SetPart<&ResponsesPart::text>, false, kResponsesItemBytes,
       kResponsesCopies},
      {"input[].content[].file_id", kString, SetPart<&ResponsesPart::file_id>, false,
       kResponsesItemBytes, kResponsesCopies},
      {"input[].content[].file_data", kString, SetPart<&ResponsesPart::file_data>, false,
       kResponsesItemBytes, kResponsesCopies},
      {"input[].content[].filename", kString, SetPart<&ResponsesPart::filename>, false,
       kResponsesItemBytes, kResponsesCopies},
      {"input[].call_id", kString, SetItem<&ResponsesItem::call_id>, false, kResponsesItemBytes,
       kResponsesCopies},
      {"input[].name", kString, SetItem<&ResponsesItem::name>, false, kResponsesItemBytes,
       kResponsesCopies},
      {"input[].arguments", kString, SetItem<&ResponsesItem::arguments>, false, kResponsesItemBytes,
       2 * kResponsesCopies},
      {"input[].output", uint8_t(kString | kArray), SetOutput, false, kResponsesItemBytes,
       kResponsesCopies},
      {"input[].output[]", kObject},
      {"input[].output[].type", kString, MustBe<ResponsesRequest, "input_text">},
      {"input[].output[].text", kString, AddOutputText, false, kResponsesItemBytes,
       kResponsesCopies},
      // What answers of this API have, and clients send back.
      {.path = "input[].id", .kinds = kString, .skip = true},
      {.path = "input[].status", .kinds = kString, .skip = true},
      {.path = "input[].phase", .kinds = kString, .skip = true},
      {.path = "input[].summary", .kinds = kArray, .skip = true},
      {.path = "input[].encrypted_content", .kinds = kString, .skip = true},
      {.path = "input[].content[].annotations", .kinds = kArray, .skip = true},
      {.path = "input[].content[].logprobs", .kinds = kArray, .skip = true},
      {.path = "input[].content[].detail", .kinds = kString, .skip = true},
  };
}

std::vector<ResponsesField> ResponsesFields() {
  using enum JsonValue::Kind;
  std::vector<ResponsesField> fields = SpecFields<ResponsesRequest>();
  const std::vector<ResponsesField> own = {
      {"instructions", kString, SetInstructions, false, kResponsesItemBytes, 3},
      {"max_output_tokens", kNumber,
       OnSpec<ResponsesRequest, SetInt32<&v1::SamplingParams::set_max_tokens>>},
      // OpenAI has none here; programs send what the other APIs take.
      {"stop", uint8_t(kString | kArray), OnSpec<ResponsesRequest, AddStop>},
      {"stop[]", kString, OnSpec<ResponsesRequest, AddStop>},
      {"stream", kBool, SetFlag<ResponsesRequest, &ResponsesRequest::stream>},
      // OpenAI annotates what its own search has found; nothing of it asks for files of the input.
      {"annulus.evidence", kBool, SetEvidence},
      {"stream_options", kObject},
      {.path = "stream_options.include_obfuscation", .kinds = kBool, .skip = true},
      {"top_logprobs", kNumber, SetTopLogprobs},
      {"include", kArray},
      {"include[]", kString, AddInclude},
      {"text", kObject},
      {"text.format", kObject},
      {"text.format.type", kString, SetFormat, false, kMessageBytes},
      {"text.format.schema", kText, SetSchema, false, kMessageBytes, 2},
      {.path = "text.format.name", .kinds = kString, .skip = true},
      {.path = "text.format.description", .kinds = kString, .skip = true},
      {.path = "text.format.strict", .kinds = kBool, .skip = true},
      {"text.verbosity", kString, MustBe<ResponsesRequest, "medium">},
      {"reasoning", kObject},
      {"reasoning.effort", kString, SetEffort, false, kMessageBytes},
      {.path = "reasoning.summary", .kinds = kString, .skip = true},
      {.path = "reasoning.generate_summary", .kinds = kString, .skip = true},
      {"tools", kText, ReadTools, false, kMessageBytes, kToolsFactor},
      {"tool_choice", uint8_t(kString | kText), OnSpec<ResponsesRequest, SetToolChoice>, false,
       kMessageBytes, kToolChoiceFactor},
      {"parallel_tool_calls", kBool, OnSpec<ResponsesRequest, SetParallelCalls>},
      {"truncation", kString, MustBe<ResponsesRequest, "disabled">},
      {"service_tier", kString, MustBe<ResponsesRequest, "default", "auto">},
      {"store", kBool, MustBeFalse<ResponsesRequest>},
      {"background", kBool, MustBeFalse<ResponsesRequest>},
      {"previous_response_id", kString, NoState},
      {"conversation", uint8_t(kString | kObject), NoState},
      {"prompt", kNull},
      // Without effect on the answer.
      {.path = "max_tool_calls", .kinds = kNumber, .skip = true},
      {.path = "client_metadata", .kinds = kObject, .skip = true},
      {.path = "user", .kinds = kString, .skip = true},
      {.path = "safety_identifier", .kinds = kString, .skip = true},
      {.path = "prompt_cache_key", .kinds = kString, .skip = true},
      {.path = "prompt_cache_retention", .kinds = kString, .skip = true},
  };
  const std::vector<ResponsesField> input = InputFields();
  fields.insert(fields.end(), own.begin(), own.end());
  fields.insert(fields.end(), input.begin(), input.end());
  return fields;
}

}  // namespace

absl::Status ReadResponsesRequest(const std::deque<std::string>& body, ResponsesRequest& request,
                                  CallMemory& memory, const CancelFlag& cancel) {
  static const auto& fields = *new std::vector<ResponsesField>(ResponsesFields());
  JsonTable<ResponsesRequest> table(fields, request);
  ANNULUS_RETURN_IF_ERROR(ReadJson(body, table, memory, cancel));
  ANNULUS_RETURN_IF_ERROR(FinishItem(request));
  ANNULUS_RETURN_IF_ERROR(FinishFormat(request));
  if (request.spec.messages().messages().empty()) {
    return FieldError("input", "is required: a text, or messages");
  }
  PutSystemFirst(request.spec, std::move(request.instructions));
  if (request.top_logprobs.has_value() || request.wants_logprobs) {
    request.spec.mutable_sampling()->set_logprobs(request.top_logprobs.value_or(0));
  }
  return absl::OkStatus();
}

}  // namespace annulus::server
