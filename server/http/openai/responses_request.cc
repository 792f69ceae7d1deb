#include "server/http/openai/responses_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/json_table.h"
#include "server/http/spec_fields.h"
#include "server/work/count_limits.h"

namespace annulus::server {
namespace {

using ResponsesField = JsonField<ResponsesRequest>;

// Copies of a part's text that exist at a time: in the part, the item and the message, and while
// one of them doubles; of a file in base64 also its text.
constexpr size_t kResponsesCopies = 6;
// An item with a part, a document, and their places.
constexpr size_t kResponsesItemBytes = 3 * kMessageBytes;
constexpr int kMostTools = 128;
constexpr size_t kLongestTool = 64;

constexpr std::array<absl::string_view, 3> kResponsesTexts = {"input_text", "output_text", "text"};

void AddLine(absl::string_view line, std::string& text) {
  if (!text.empty()) text.push_back('\n');
  text.append(line.data(), line.size());
}

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

absl::Status FinishItem(ResponsesRequest& request) {
  ANNULUS_RETURN_IF_ERROR(FinishPart(request));
  ResponsesItem item = std::exchange(request.item, ResponsesItem());
  if (item.field.empty()) return absl::OkStatus();
  if (item.type == "reasoning") {
    request.reasoning += item.reasoning;
    return absl::OkStatus();
  }
  if (!item.type.empty() && item.type != "message") {
    return FieldError(absl::StrCat(item.field, ".type"),
                      absl::StrCat(QuoteName(item.type), " is not supported"));
  }
  if (item.role.empty()) return FieldError(absl::StrCat(item.field, ".role"), "is required");
  const absl::Status started = StartMessage(request.spec);
  if (!started.ok()) return WithField(started, item.field);
  v1::Message& message = LastMessage(request.spec);
  message.set_role(RoleOf(item.role));
  message.set_content(std::move(item.text));
  if (item.role != "assistant") return absl::OkStatus();
  std::string reasoning = std::exchange(request.reasoning, "");
  if (!reasoning.empty()) message.set_reasoning(std::move(reasoning));
  return absl::OkStatus();
}

absl::Status SetInput(ResponsesRequest& request, const JsonValue& value) {
  if (value.kind == JsonValue::kArray) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(StartMessage(request.spec));
  LastMessage(request.spec).set_role("user");
  LastMessage(request.spec).set_content(std::string(value.text));
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

// What is not listed here concerns tools, of which there are none.
absl::Status AddInclude(ResponsesRequest& request, const JsonValue& value) {
  if (value.text == "message.output_text.logprobs") request.wants_logprobs = true;
  return absl::OkStatus();
}

absl::Status AddTool(ResponsesRequest& request, const JsonValue&) {
  if (++request.tools <= kMostTools) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("at most ", kMostTools, " tools are allowed"));
}

// A tool that the model cannot call here is left out, and the answer says so.
absl::Status NoteTool(ResponsesRequest& request, const JsonValue& value) {
  if (value.text == "function" || value.text == "custom") {
    return absl::InvalidArgumentError(absl::StrCat(QuoteName(value.text), " is not supported"));
  }
  const bool is_name = value.text.size() <= kLongestTool &&
                       std::all_of(value.text.begin(), value.text.end(), [](char c) {
                         return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
                       });
  if (!is_name)
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteName(value.text), " is not the type of a tool"));
  auto& ignored = request.ignored_tools;
  if (std::find(ignored.begin(), ignored.end(), value.text) == ignored.end()) {
    ignored.emplace_back(value.text);
  }
  return absl::OkStatus();
}

absl::Status NoState(ResponsesRequest&, const JsonValue&) {
  return absl::InvalidArgumentError(
      "this server keeps no state: send the whole conversation as input");
}

// For fields that may have one of these values only.
template <char kFirst>
absl::Status MustBeUsual(ResponsesRequest&, const JsonValue& value) {
  const absl::string_view usual = kFirst == 't'   ? "text"
                                  : kFirst == 'm' ? "medium"
                                  : kFirst == 'n' ? "none"
                                  : kFirst == 'd' ? "disabled"
                                                  : "default";
  if (value.text == usual || (usual == "default" && value.text == "auto") ||
      (usual == "none" && value.text == "auto")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteName(value.text), " is not supported: only \"", usual, "\""));
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
      {"stream", kBool, SetFlag<ResponsesRequest, &ResponsesRequest::stream>},
      {"stream_options", kObject},
      {.path = "stream_options.include_obfuscation", .kinds = kBool, .skip = true},
      {"top_logprobs", kNumber, SetTopLogprobs},
      {"include", kArray},
      {"include[]", kString, AddInclude},
      {"text", kObject},
      {"text.format", kObject},
      {"text.format.type", kString, MustBeUsual<'t'>},
      {"text.verbosity", kString, MustBeUsual<'m'>},
      {"reasoning", kObject},
      {"reasoning.effort", kString, MustBeUsual<'n'>},
      {.path = "reasoning.summary", .kinds = kString, .skip = true},
      {.path = "reasoning.generate_summary", .kinds = kString, .skip = true},
      {"tools", kArray},
      {"tools[]", kObject, AddTool, false, kMessageBytes},
      {"tools[].type", kString, NoteTool, false, 2 * kLongestTool},
      {.path = "tools[].*", .kinds = kObject, .skip = true},
      {"tool_choice", kString, MustBeUsual<'n'>},
      {"truncation", kString, MustBeUsual<'d'>},
      {"service_tier", kString, MustBeUsual<'a'>},
      {"store", kBool, MustBeFalse<ResponsesRequest>},
      {"background", kBool, MustBeFalse<ResponsesRequest>},
      {"previous_response_id", kString, NoState},
      {"conversation", uint8_t(kString | kObject), NoState},
      {"prompt", kNull},
      // Without effect on the answer.
      {.path = "parallel_tool_calls", .kinds = kBool, .skip = true},
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
