#include "server/http/anthropic/messages_request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/anthropic/messages_blocks.h"
#include "server/http/json/json_table.h"
#include "server/http/spec_fields.h"
#include "server/http/tool_definitions.h"

namespace annulus::server {
namespace {

using MessagesField = JsonField<MessagesRequest>;

// Copies of a block's text that exist at a time: here, in the message or the document, and while
// either of them doubles; of a file in base64 also its text.
constexpr size_t kMessagesCopies = 5;
// A document and its place, or a message.
constexpr size_t kMessagesBlockBytes = 2 * kMessageBytes;

absl::Status FinishMessage(MessagesRequest& request) {
  ANNULUS_RETURN_IF_ERROR(FinishBlock(request));
  if (request.messages == 0 || request.has_role) return absl::OkStatus();
  return FieldError(absl::StrCat("messages[", request.messages - 1, "].role"), "is required");
}

absl::Status AddMessage(MessagesRequest& request, const JsonValue&) {
  const absl::Status before = FinishMessage(request);
  ++request.messages;
  request.blocks = 0;
  request.after_text = false;
  request.joints.clear();
  request.has_role = true;  // of a message that an error leaves out nothing is asked
  ANNULUS_RETURN_IF_ERROR(before);
  ANNULUS_RETURN_IF_ERROR(StartMessage(request.spec));
  request.first = request.spec.messages().messages_size() - 1;
  request.has_role = false;
  return absl::OkStatus();
}

absl::Status AddBlock(MessagesRequest& request, const JsonValue&) {
  return StartBlock(request, absl::StrCat("messages[", request.messages - 1, "].content[",
                                          request.blocks++, "]"));
}

absl::Status AddSystemBlock(MessagesRequest& request, const JsonValue&) {
  return StartBlock(request, "system");
}

absl::Status SetRole(MessagesRequest& request, const JsonValue& value) {
  // The content may stand before it, and be several messages.
  ANNULUS_RETURN_IF_ERROR(FinishBlock(request));
  request.has_role = !value.text.empty();
  auto& messages = *request.spec.mutable_messages()->mutable_messages();
  for (int i = request.first; i < messages.size(); ++i) {
    if (messages[i].role() == "tool" && value.text == "assistant") {
      return absl::InvalidArgumentError("must be \"user\": the content has a tool_result");
    }
    if (messages[i].role().empty()) messages[i].set_role(std::string(value.text));
  }
  if (value.text == "assistant") DropJoints(request);
  request.joints.clear();
  return absl::OkStatus();
}

absl::Status SetContent(MessagesRequest& request, const JsonValue& value) {
  LastMessage(request.spec).set_content(TakeText(value));
  return absl::OkStatus();
}

absl::Status SetSystem(MessagesRequest& request, const JsonValue& value) {
  if (value.kind == JsonValue::kString) request.system = std::string(value.text);
  return absl::OkStatus();
}

template <std::string MessagesBlock::*kMember>
absl::Status SetBlock(MessagesRequest& request, const JsonValue& value) {
  request.block.*kMember = std::string(value.text);
  return absl::OkStatus();
}

// The text of a source, or of one of its blocks.
absl::Status AddSourceText(MessagesRequest& request, const JsonValue& value) {
  if (value.kind == JsonValue::kArray) return absl::OkStatus();
  AddLine(value.text, request.block.data);
  return absl::OkStatus();
}

// The same, of a source whose blocks are cited whole.
absl::Status AddPiece(MessagesRequest& request, const JsonValue& value) {
  if (value.kind == JsonValue::kArray) return absl::OkStatus();
  AddLine(value.text, request.block.data);
  const auto end = static_cast<int64_t>(request.block.data.size());
  request.block.pieces.push_back({end - static_cast<int64_t>(value.text.size()), end});
  return absl::OkStatus();
}

absl::Status SetCitations(MessagesRequest& request, const JsonValue& value) {
  request.block.lists_citations = value.kind == JsonValue::kArray;
  return absl::OkStatus();
}

absl::Status EnableCitations(MessagesRequest& request, const JsonValue& value) {
  request.block.enables_citations = value.truth;
  return absl::OkStatus();
}

absl::Status ReadTools(MessagesRequest& request, const JsonValue& value) {
  return SetFlatTools(
      value.text, "input_schema",
      [](absl::string_view type) -> absl::StatusOr<bool> {
        if (type.empty() || type == "custom") return true;
        return absl::InvalidArgumentError(
            absl::StrCat(QuoteName(type), " is not supported: this server runs no tools itself"));
      },
      request.spec);
}

absl::Status SetToolChoice(MessagesRequest& request, const JsonValue& value) {
  v1::ToolChoice& choice = *request.spec.mutable_tool_choice();
  if (value.text == "auto") {
    choice.set_mode(v1::TOOL_CHOICE_MODE_AUTO);
  } else if (value.text == "none") {
    choice.set_mode(v1::TOOL_CHOICE_MODE_NONE);
  } else if (value.text == "any" || value.text == "tool") {
    choice.set_mode(v1::TOOL_CHOICE_MODE_REQUIRED);
    request.names_tool = value.text == "tool";
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        QuoteName(value.text), " is not supported: only \"auto\", \"any\", \"tool\" and \"none\""));
  }
  return absl::OkStatus();
}

absl::Status SetToolName(MessagesRequest& request, const JsonValue& value) {
  request.spec.mutable_tool_choice()->set_name(std::string(value.text));
  return absl::OkStatus();
}

absl::Status SetOneTool(MessagesRequest& request, const JsonValue& value) {
  request.spec.set_parallel_tool_calls(!value.truth);
  return absl::OkStatus();
}

absl::Status SetSchema(MessagesRequest& request, const JsonValue& value) {
  request.spec.mutable_output()->set_json_schema(std::string(value.text));
  return absl::OkStatus();
}

absl::Status SetEffort(MessagesRequest& request, const JsonValue& value) {
  ANNULUS_RETURN_IF_ERROR(CheckReasoningEffort(value.text));
  AddReasoningEffort(request.spec, value.text);
  return absl::OkStatus();
}

absl::Status SetThinking(MessagesRequest& request, const JsonValue& value) {
  if (value.text != "enabled" && value.text != "adaptive" && value.text != "disabled") {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteName(value.text),
                     " is not supported: only \"enabled\", \"adaptive\" "
                     "and \"disabled\""));
  }
  request.thinks = value.text == "enabled";
  return absl::OkStatus();
}

absl::Status SetLifetime(MessagesRequest& request, const JsonValue& value) {
  std::chrono::milliseconds time = std::chrono::minutes(5);
  if (value.text == "1h") {
    time = std::chrono::hours(1);
  } else if (value.text != "5m") {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteName(value.text), " is not allowed: \"5m\" or \"1h\""));
  }
  request.keep_for = std::max(time, request.keep_for.value_or(time));
  return absl::OkStatus();
}

// Adds the fields of the `cache_control` at this path.
void AddCacheControl(absl::string_view place, std::vector<MessagesField>& fields) {
  using enum JsonValue::Kind;
  static auto& paths = *new std::deque<std::string>;  // live as long as the table
  const auto path = [&](absl::string_view end) -> absl::string_view {
    return paths.emplace_back(absl::StrCat(place, "cache_control", end));
  };
  fields.push_back({path(""), kObject});
  fields.push_back({path(".type"), kString, MustBe<MessagesRequest, "ephemeral">});
  fields.push_back({path(".ttl"), kString, SetLifetime});
}

std::vector<MessagesField> BlockFields() {
  using enum JsonValue::Kind;
  return {
      {"messages[].content[]", kObject, AddBlock, false, kMessagesBlockBytes},
      {"messages[].content[].type", kString, SetBlock<&MessagesBlock::type>},
      {"messages[].content[].text", kString, SetBlock<&MessagesBlock::text>, false,
       kMessagesBlockBytes, kMessagesCopies},
      {"messages[].content[].thinking", kString, SetBlock<&MessagesBlock::text>, false,
       kMessagesBlockBytes, kMessagesCopies},
      {.path = "messages[].content[].signature", .kinds = kString, .skip = true},
      {"messages[].content[].citations", kObject | kArray, SetCitations},
      {.path = "messages[].content[].citations[]", .kinds = kObject, .skip = true},
      {"messages[].content[].citations.enabled", kBool, EnableCitations},
      {"messages[].content[].title", kString, SetBlock<&MessagesBlock::title>, false,
       kMessagesBlockBytes, kMessagesCopies},
      {"messages[].content[].context", kString, SetBlock<&MessagesBlock::context>, false,
       kMessagesBlockBytes, kMessagesCopies},
      {"messages[].content[].id", kString, SetBlock<&MessagesBlock::id>, false, kMessagesBlockBytes,
       kMessagesCopies},
      {"messages[].content[].tool_use_id", kString, SetBlock<&MessagesBlock::id>, false,
       kMessagesBlockBytes, kMessagesCopies},
      {"messages[].content[].name", kString, SetBlock<&MessagesBlock::name>, false,
       kMessagesBlockBytes, kMessagesCopies},
      {"messages[].content[].input", kText, SetBlock<&MessagesBlock::input>, false,
       kMessagesBlockBytes, 2 * kMessagesCopies},
      {"messages[].content[].content", uint8_t(kString | kArray), AddSourceText, false,
       kMessagesBlockBytes, kMessagesCopies},
      {"messages[].content[].content[]", kObject},
      {"messages[].content[].content[].type", kString, MustBe<MessagesRequest, "text">},
      {"messages[].content[].content[].text", kString, AddSourceText, false, kMessagesBlockBytes,
       kMessagesCopies},
      {.path = "messages[].content[].is_error", .kinds = kBool, .skip = true},
      {.path = "messages[].content[].caller", .kinds = kObject, .skip = true},
      {.path = "messages[].content[].parsed_output", .kinds = kObject, .skip = true},
      {.path = "messages[].content[].toolset_name", .kinds = kString, .skip = true},
      {"messages[].content[].source", kObject},
      {"messages[].content[].source.type", kString, SetBlock<&MessagesBlock::source>},
      {"messages[].content[].source.media_type", kString, SetBlock<&MessagesBlock::media_type>},
      {"messages[].content[].source.file_id", kString, SetBlock<&MessagesBlock::file_id>, false,
       kMessagesBlockBytes, kMessagesCopies},
      {.path = "messages[].content[].source.url", .kinds = kString, .skip = true},
      {"messages[].content[].source.data", kString, AddSourceText, false, kMessagesBlockBytes,
       kMessagesCopies},
      {"messages[].content[].source.content", uint8_t(kString | kArray), AddPiece, false,
       kMessagesBlockBytes, kMessagesCopies},
      {"messages[].content[].source.content[]", kObject},
      {"messages[].content[].source.content[].type", kString, MustBe<MessagesRequest, "text">},
      {"messages[].content[].source.content[].text", kString, AddPiece, false, kMessagesBlockBytes,
       kMessagesCopies},
      {"system", uint8_t(kString | kArray), SetSystem, false, kMessagesBlockBytes, kMessagesCopies},
      {"system[]", kObject, AddSystemBlock, false, kMessagesBlockBytes},
      {"system[].type", kString, SetBlock<&MessagesBlock::type>},
      {"system[].text", kString, SetBlock<&MessagesBlock::text>, false, kMessagesBlockBytes,
       kMessagesCopies},
      {.path = "system[].citations", .kinds = kArray},
      {.path = "system[].citations[]", .kinds = kObject, .skip = true},
  };
}

std::vector<MessagesField> MessagesFields() {
  using enum JsonValue::Kind;
  std::vector<MessagesField> fields = SpecFields<MessagesRequest>();
  const std::vector<MessagesField> own = {
      {"max_tokens", kNumber,
       OnSpec<MessagesRequest, SetInt32<&v1::SamplingParams::set_max_tokens>>},
      {"stop_sequences", kArray},
      {"stop_sequences[]", kString, OnSpec<MessagesRequest, AddStop>},
      {"stream", kBool, SetFlag<MessagesRequest, &MessagesRequest::stream>},
      {"messages", kArray},
      {"messages[]", kObject, AddMessage, false, kMessageBytes},
      {"messages[].role", kString, SetRole},
      {"messages[].content", uint8_t(kString | kArray), SetContent},
      {"thinking", kObject},
      {"thinking.type", kString, SetThinking},
      {"thinking.budget_tokens", kNumber, OnSpec<MessagesRequest, SetReasoningBudget>},
      {.path = "thinking.display", .kinds = kString, .skip = true},
      {"tools", kText, ReadTools, false, kMessageBytes, kToolsFactor},
      {"tool_choice", kObject},
      {"tool_choice.type", kString, SetToolChoice},
      {"tool_choice.name", kString, SetToolName, false, kMessageBytes},
      {"tool_choice.disable_parallel_tool_use", kBool, SetOneTool},
      {"output_config", kObject},
      {"output_config.effort", kString, SetEffort, false, kMessageBytes},
      {"output_config.format", kObject},
      {"output_config.format.type", kString, MustBe<MessagesRequest, "json_schema">},
      {"output_config.format.schema", kText, SetSchema, false, kMessageBytes, 2},
      {"speed", kString, MustBe<MessagesRequest, "standard">},
      // Without effect on the answer.
      {.path = "service_tier", .kinds = kString, .skip = true},
      {.path = "user_profile_id", .kinds = kString, .skip = true},
      {.path = "workspace_id", .kinds = kString, .skip = true},
      {"container", kNull},
      {"diagnostics", kNull},
      {"inference_geo", kNull},
  };
  const std::vector<MessagesField> blocks = BlockFields();
  fields.insert(fields.end(), own.begin(), own.end());
  fields.insert(fields.end(), blocks.begin(), blocks.end());
  for (const char* place :
       {"", "system[].", "messages[].content[].", "messages[].content[].content[].",
        "messages[].content[].source.content[]."}) {
    AddCacheControl(place, fields);
  }
  return fields;
}

}  // namespace

absl::Status ReadMessagesRequest(const std::deque<std::string>& body, bool counts,
                                 MessagesRequest& request, CallMemory& memory,
                                 const CancelFlag& cancel) {
  static const auto& fields = *new std::vector<MessagesField>(MessagesFields());
  JsonTable<MessagesRequest> table(fields, request);
  ANNULUS_RETURN_IF_ERROR(ReadJson(body, table, memory, cancel));
  ANNULUS_RETURN_IF_ERROR(FinishMessage(request));
  if (request.spec.messages().messages().empty()) {
    return FieldError("messages", "is required: 1 to 10000 messages");
  }
  if (!counts && !request.spec.sampling().has_max_tokens()) {
    return FieldError("max_tokens", "is required: the most tokens of the answer");
  }
  if (request.thinks && !request.spec.has_reasoning_budget()) {
    return FieldError("thinking.budget_tokens", "is required with this type");
  }
  if (request.names_tool && request.spec.tool_choice().name().empty()) {
    return FieldError("tool_choice.name", "is required with this type");
  }
  // The beginning of the answer.
  if (LastMessage(request.spec).role() == "assistant") {
    request.spec.mutable_messages()->set_continue_final_message(true);
  }
  PutSystemFirst(request.spec, std::move(request.system));
  return FinishCitations(request);
}

}  // namespace annulus::server
