#include "server/http/anthropic/messages_request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/json/json_table.h"
#include "server/http/spec_fields.h"
#include "server/http/tool_definitions.h"
#include "server/work/count_limits.h"

namespace annulus::server {
namespace {

using MessagesField = JsonField<MessagesRequest>;

// Copies of a block's text that exist at a time: here, in the message or the document, and while
// either of them doubles; of a file in base64 also its text.
constexpr size_t kMessagesCopies = 5;
// A document and its place, or a message.
constexpr size_t kMessagesBlockBytes = 2 * kMessageBytes;
// Texts that documents with citations are made of: their places are kept with the answer.
constexpr size_t kMostPieces = 4096;

absl::Status Unsupported(absl::string_view field, absl::string_view what) {
  return FieldError(field, absl::StrCat(QuoteName(what), " is not supported"));
}

// The texts of a message are lines, but the assistant's belong together: an answer with citations
// has a block for each sentence.
void AddTextBlock(MessagesRequest& request, absl::string_view text, bool after_text) {
  v1::Message& message = LastMessage(request.spec);
  std::string& content = *message.mutable_content();
  if (after_text && message.role() == "assistant") {
    content.append(text.data(), text.size());
    return;
  }
  if (after_text && message.role().empty() && !content.empty()) {
    request.joints.push_back(content.size());
  }
  AddLine(text, content);
}

// The same once the role of such a message turns out to be the assistant's.
void DropJoints(MessagesRequest& request) {
  std::string& content = *LastMessage(request.spec).mutable_content();
  std::string joined;
  joined.reserve(content.size());
  size_t from = 0;
  for (const size_t joint : request.joints) {
    joined.append(content, from, joint - from);
    from = joint + 1;
  }
  joined.append(content, from);
  content = std::move(joined);
}

// A document enables citations; a text has those that an earlier answer gave it, which change
// nothing.
absl::Status CheckCitations(const MessagesBlock& block) {
  if (block.type == "document" && block.lists_citations) {
    return FieldError(absl::StrCat(block.field, ".citations"),
                      "of a document must be an object: {\"enabled\": true}");
  }
  if (block.type != "document" && block.enables_citations) {
    return FieldError(absl::StrCat(block.field, ".citations.enabled"),
                      absl::StrCat("a block of type ", QuoteName(block.type),
                                   " cannot be cited: enable citations on blocks of type "
                                   "\"document\""));
  }
  return absl::OkStatus();
}

void NoteCitations(MessagesRequest& request, const MessagesBlock& block) {
  std::string& first = block.enables_citations ? request.citing : request.uncited;
  if (first.empty()) first = absl::StrCat(block.field, ".citations.enabled");
}

// All documents have citations, or none: else an answer by one without them would seem to rest on
// none.
absl::Status FinishCitations(MessagesRequest& request) {
  if (request.citing.empty()) return absl::OkStatus();
  if (!request.uncited.empty()) {
    return FieldError(request.uncited,
                      absl::StrCat("must be true, because ", request.citing,
                                   " is: citations are for all documents of a request or none"));
  }
  if (request.spec.documents_size() > 0) {
    return FieldError("annulus.documents",
                      "cannot be cited: send each of them as a block of type \"document\" with "
                      "the source {\"type\": \"file\", \"file_id\": its name}");
  }
  if (request.pieces > kMostPieces) {
    return FieldError(request.citing,
                      absl::StrCat("the documents have ", request.pieces,
                                   " blocks of content; with citations at most ", kMostPieces,
                                   " are allowed: join neighbours, or leave citations out"));
  }
  request.spec.set_evidence(true);
  for (AttachedDocument& document : request.documents) document.quoted = true;
  return absl::OkStatus();
}

absl::Status FinishDocument(MessagesRequest& request, MessagesBlock block) {
  NoteCitations(request, block);
  AttachedDocument document{.field = block.field, .title = std::move(block.title)};
  if (block.source == "file") {
    if (block.file_id.empty()) return FieldError(block.field, "its source has no file_id");
    document.name = std::move(block.file_id);
  } else if (block.source == "base64") {
    const absl::Status is_text = CheckIsText(block.media_type, "");
    if (!is_text.ok()) return WithField(is_text, block.field);
    const absl::Status read = ReadFileData(block.data, document.text);
    if (!read.ok()) return WithField(read, block.field);
  } else if (block.source == "text" || block.source == "content") {
    document.text = std::move(block.data);
    if (block.source == "content" && block.enables_citations) {
      request.pieces += block.pieces.size();
      document.pieces = std::move(block.pieces);
    }
  } else {
    return FieldError(absl::StrCat(block.field, ".source.type"),
                      absl::StrCat(QuoteName(block.source),
                                   " is not supported: only \"text\", \"content\", \"base64\" "
                                   "and \"file\""));
  }
  // Beside the document, not in it: with another context its keys and values are the same.
  if (!block.context.empty()) AddText(request.spec, block.context);
  request.documents.push_back(std::move(document));
  return absl::OkStatus();
}

absl::Status AddCall(MessagesRequest& request, const MessagesBlock& block) {
  if (block.name.empty()) return FieldError(absl::StrCat(block.field, ".name"), "is required");
  AddToolCall(block.id, block.name, block.input.empty() ? "{}" : block.input,
              LastMessage(request.spec));
  return absl::OkStatus();
}

// Chat templates want each result of a tool as a message of its own.
absl::Status AddResult(MessagesRequest& request, MessagesBlock block) {
  if (LastMessage(request.spec).role() == "assistant") {
    return Unsupported(absl::StrCat(block.field, ".type"), block.type);
  }
  const v1::Message& last = LastMessage(request.spec);
  if (last.role() == "tool" || !last.content().empty()) {
    ANNULUS_RETURN_IF_ERROR(StartMessage(request.spec));
  }
  v1::Message& message = LastMessage(request.spec);
  message.set_role("tool");
  message.set_tool_call_id(std::move(block.id));
  message.set_content(std::move(block.data));
  return absl::OkStatus();
}

// What the user says behind the results.
absl::Status LeaveResults(MessagesRequest& request) {
  if (LastMessage(request.spec).role() != "tool") return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(StartMessage(request.spec));
  LastMessage(request.spec).set_role("user");
  return absl::OkStatus();
}

// Puts the block where it belongs, once all of it has been read.
absl::Status FinishBlock(MessagesRequest& request) {
  MessagesBlock block = std::exchange(request.block, MessagesBlock());
  if (block.field.empty()) return absl::OkStatus();
  if (block.type.empty()) return FieldError(absl::StrCat(block.field, ".type"), "is required");
  const bool is_text = block.type == "text";
  ANNULUS_RETURN_IF_ERROR(CheckCitations(block));
  if (absl::StartsWith(block.field, "system")) {
    if (!is_text) return Unsupported(absl::StrCat(block.field, ".type"), block.type);
    AddLine(block.text, request.system);
    return absl::OkStatus();
  }
  if (block.type == "tool_result") return AddResult(request, std::move(block));
  ANNULUS_RETURN_IF_ERROR(LeaveResults(request));
  const bool after_text = std::exchange(request.after_text, is_text);
  if (is_text) {
    AddTextBlock(request, block.text, after_text);
  } else if (block.type == "tool_use") {
    return AddCall(request, block);
  } else if (block.type == "thinking") {
    std::string& reasoning = *LastMessage(request.spec).mutable_reasoning();
    reasoning += block.text;
  } else if (block.type == "document") {
    return FinishDocument(request, std::move(block));
  } else {
    return Unsupported(absl::StrCat(block.field, ".type"), block.type);
  }
  return absl::OkStatus();
}

absl::Status StartBlock(MessagesRequest& request, std::string field) {
  ANNULUS_RETURN_IF_ERROR(FinishBlock(request));
  if (request.documents.size() > kMostDocuments) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kMostDocuments, " documents are allowed"));
  }
  request.block.field = std::move(field);
  return absl::OkStatus();
}

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
