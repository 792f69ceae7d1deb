#include "engine/prompt/chat.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/error_payloads.h"
#include "engine/base/field_error.h"
#include "engine/base/tokenize_memory.h"
#include "engine/prompt/chat_documents.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// The field of an error with which the template itself refuses a conversation.
constexpr char kMessagesField[] = "messages";

// An error of a field of the messages.
absl::Status Refused(absl::string_view field, absl::string_view message) {
  return FieldError(absl::StatusCode::kInvalidArgument, absl::StrCat("messages.", field), message);
}

absl::Status CheckText(const std::string& field, const std::string& text) {
  const auto bad = FirstInvalidUtf8(text);
  return bad.has_value() ? Refused(field, InvalidUtf8Error(*bad).message()) : absl::OkStatus();
}

// `json` must be an array or an object, as its first character says. The check needs no stack.
absl::Status CheckJson(const std::string& field, const std::string& json, char first) {
  const size_t begin = json.find_first_not_of(" \t\r\n");
  if (begin != std::string::npos && json[begin] == first && nlohmann::json::accept(json)) {
    return absl::OkStatus();
  }
  return Refused(field, first == '[' ? "must be a JSON array" : "must be a JSON object");
}

// Reads JSON and notes the first name of the outermost object that options may not have.
class OptionNames final : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& forbidden() const { return forbidden_; }

  bool key(std::string& name) override {
    const bool known = name == "messages" || name == "tools" || name == "add_generation_prompt";
    if (depth_ == 1 && known && forbidden_.empty()) forbidden_ = name;
    return true;
  }
  bool start_object(size_t) override { return ++depth_ > 0; }
  bool start_array(size_t) override { return ++depth_ > 0; }
  bool end_object() override { return depth_-- > 0; }
  bool end_array() override { return depth_-- > 0; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  size_t depth_ = 0;
  std::string forbidden_;
};

// Options must be an object, and may not replace what requests have fields for: they would be
// ignored.
absl::Status CheckOptions(const std::string& options) {
  ANNULUS_RETURN_IF_ERROR(CheckJson("template_options", options, '{'));
  OptionNames names;
  nlohmann::json::sax_parse(options, &names);
  if (names.forbidden().empty()) return absl::OkStatus();
  return Refused("template_options", absl::StrCat("has the member \"", names.forbidden(),
                                                  "\", which would be ignored; use the field ",
                                                  names.forbidden(), " of the request"));
}

// JSON that grows at its end, in a buffer of its final size.
class JsonText {
 public:
  explicit JsonText(size_t most_bytes) { text_.reserve(most_bytes); }

  void Open(char bracket) {
    Separate();
    text_.push_back(bracket);
  }
  void Close(char bracket) { text_.push_back(bracket); }
  void Name(absl::string_view name) {
    Separate();
    absl::StrAppend(&text_, "\"", name, "\":");
  }
  // A value that is JSON, or members of an object.
  void Add(absl::string_view json) { absl::StrAppend(&text_, json); }
  void AddMembers(absl::string_view members) {
    Separate();
    Add(members);
  }
  // A value, of valid UTF-8.
  void AddString(absl::string_view text) {
    text_.push_back('"');
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < 0x20) {
        constexpr absl::string_view kDigits = "0123456789abcdef";
        absl::StrAppend(&text_, c < 0x10 ? "\\u000" : "\\u001", kDigits.substr(c & 15, 1));
      } else {
        if (c == '"' || c == '\\') text_.push_back('\\');
        text_.push_back(c);
      }
    }
    text_.push_back('"');
  }
  // What AddString makes of it.
  static size_t SizeOf(absl::string_view text) {
    size_t size = 2;
    for (const char c : text) {
      size += static_cast<unsigned char>(c) < 0x20 ? 6 : c == '"' || c == '\\' ? 2 : 1;
    }
    return size;
  }

  std::string Take() && { return std::move(text_); }

 private:
  void Separate() {
    if (!text_.empty() && text_.back() != '{' && text_.back() != '[' && text_.back() != ':') {
      text_.push_back(',');
    }
  }

  std::string text_;
};

size_t SizeOf(const std::optional<std::string>& text) {
  return text.has_value() ? JsonText::SizeOf(*text) : 0;
}

// The most that the variables may take.
size_t VariablesSize(const TemplateDirectory& templates, const ChatRequest& request,
                     const std::string& documents) {
  constexpr size_t kNames = 256;  // of members, with brackets and commas
  size_t size = kNames + documents.size();
  for (const auto& [name, token] : templates.special_tokens()) {
    size += name.size() + JsonText::SizeOf(token) + 4;
  }
  for (const auto* json : {&request.template_options, &request.tools}) {
    size += json->has_value() ? (*json)->size() : 0;
  }
  for (const ChatMessage& message : request.messages) {
    size += kNames + JsonText::SizeOf(message.role) + SizeOf(message.content) +
            SizeOf(message.name) + 2 * SizeOf(message.reasoning) + SizeOf(message.tool_call_id);
    size += message.tool_calls.has_value() ? message.tool_calls->size() : 0;
  }
  return size;
}

// Gives messages to templates in the form that Transformers does: an absent field has no member,
// and reasoning has the two names that templates know.
absl::Status AddMessage(const ChatMessage& message, const std::string& place, JsonText& json) {
  const auto add = [&](const char* name, const std::optional<std::string>& text) -> absl::Status {
    if (!text.has_value()) return absl::OkStatus();
    ANNULUS_RETURN_IF_ERROR(CheckText(absl::StrCat(place, ".", name), *text));
    json.Name(name);
    json.AddString(*text);
    return absl::OkStatus();
  };
  json.Open('{');
  ANNULUS_RETURN_IF_ERROR(add("role", message.role));
  ANNULUS_RETURN_IF_ERROR(add("content", message.content));
  ANNULUS_RETURN_IF_ERROR(add("name", message.name));
  if (message.reasoning.has_value()) {
    ANNULUS_RETURN_IF_ERROR(CheckText(absl::StrCat(place, ".reasoning"), *message.reasoning));
    for (const char* name : {"thinking", "reasoning_content"}) {
      json.Name(name);
      json.AddString(*message.reasoning);
    }
  }
  if (message.tool_calls.has_value()) {
    ANNULUS_RETURN_IF_ERROR(
        CheckJson(absl::StrCat(place, ".tool_calls"), *message.tool_calls, '['));
    json.Name("tool_calls");
    json.Add(*message.tool_calls);
  }
  ANNULUS_RETURN_IF_ERROR(add("tool_call_id", message.tool_call_id));
  json.Close('}');
  return absl::OkStatus();
}

// The members, without the brackets, of an object that CheckJson has accepted.
absl::string_view MembersOf(absl::string_view object) {
  const size_t begin = object.find('{') + 1;
  const absl::string_view members = object.substr(begin, object.rfind('}') - begin);
  return members.find_first_not_of(" \t\r\n") == members.npos ? "" : members;
}

absl::StatusOr<std::string> Variables(const TemplateDirectory& templates,
                                      const ChatRequest& request, const std::string& documents,
                                      size_t most_bytes) {
  JsonText json(most_bytes);
  json.Open('{');
  for (const auto& [name, token] : templates.special_tokens()) {
    json.Name(name);
    json.AddString(token);
  }
  json.Name("documents");
  json.Add(documents);
  // Later members win: options may replace special tokens and documents.
  if (request.template_options.has_value()) {
    ANNULUS_RETURN_IF_ERROR(CheckOptions(*request.template_options));
    const absl::string_view members = MembersOf(*request.template_options);
    if (!members.empty()) json.AddMembers(members);
  }
  if (request.tools.has_value()) {
    ANNULUS_RETURN_IF_ERROR(CheckJson("tools", *request.tools, '['));
  }
  json.Name("messages");
  json.Open('[');
  for (size_t i = 0; i < request.messages.size(); ++i) {
    ANNULUS_RETURN_IF_ERROR(
        AddMessage(request.messages[i], absl::StrCat("messages[", i, "]"), json));
  }
  json.Close(']');
  json.Name("tools");
  json.Add(request.tools.has_value() ? absl::string_view(*request.tools) : "null");
  json.Name("add_generation_prompt");
  json.Add(request.add_generation_prompt ? "true" : "false");
  json.Close('}');
  return std::move(json).Take();
}

absl::StatusOr<RenderedChat> RenderAsAsked(const TemplateDirectory& templates,
                                           const Tokenizer& tokenizer, const ChatRequest& request,
                                           const std::tm& now, const CancelFlag& cancel,
                                           MemoryGrant& memory) {
  if (!request.documents.empty()) {
    return RenderWithDocuments(templates, tokenizer, request, now, cancel, memory);
  }
  RenderedChat chat;
  ANNULUS_ASSIGN_OR_RETURN(chat.text,
                           RenderTemplate(templates, request, "null", now, cancel, memory));
  ANNULUS_RETURN_IF_ERROR(AllowIds(chat.text, memory));
  ANNULUS_ASSIGN_OR_RETURN(chat.token_ids,
                           tokenizer.Encode(chat.text, /*add_special=*/false, cancel));
  return chat;
}

bool IsRefusedByTemplate(const absl::Status& status) {
  return absl::IsInvalidArgument(status) && status.GetPayload(kFieldPayload) == kMessagesField;
}

// Puts the contents of the system messages at the beginning in front of the content of the first
// user message. Nothing if there are none, or no user message.
std::optional<ChatRequest> FoldSystem(const ChatRequest& request) {
  const auto is_system = [](const ChatMessage& message) { return message.role == "system"; };
  ChatRequest folded = request;
  std::vector<ChatMessage>& messages = folded.messages;
  const auto behind = std::find_if_not(messages.begin(), messages.end(), is_system);
  const auto user = std::find_if(behind, messages.end(),
                                 [](const ChatMessage& message) { return message.role == "user"; });
  if (behind == messages.begin() || user == messages.end()) return std::nullopt;
  std::string content;
  for (auto system = messages.begin(); system != behind; ++system) {
    absl::StrAppend(&content, system->content.value_or(""), "\n\n");
  }
  user->content = absl::StrCat(content, user->content.value_or(""));
  messages.erase(messages.begin(), behind);
  return folded;
}

// Renders all that the template writes.
absl::StatusOr<std::string> RenderWhole(const TemplateDirectory& templates,
                                        const ChatRequest& request, const std::string& documents,
                                        const std::tm& now, const CancelFlag& cancel,
                                        MemoryGrant& memory) {
  ANNULUS_ASSIGN_OR_RETURN(const ChatTemplate* chat_template,
                           templates.Select(request.tools.has_value()));
  // The check of a client's JSON takes as much memory as its longest text, and three times that
  // while its buffer grows.
  constexpr size_t kCheck = size_t{3} << 20;
  const size_t size = VariablesSize(templates, request, documents);
  ANNULUS_RETURN_IF_ERROR(memory.Allow(size + kCheck));
  ANNULUS_ASSIGN_OR_RETURN(const std::string variables,
                           Variables(templates, request, documents, size));
  PartOfGrant rest(memory, variables.capacity());
  auto text =
      chat_template->Render(variables, now, RenderLimits::ForInput(variables.size()), cancel, rest);
  if (absl::IsInvalidArgument(text.status())) {
    return FieldError(absl::StatusCode::kInvalidArgument, kMessagesField, text.status().message());
  }
  return text;
}

}  // namespace

// To continue the last message, marks the end of its content and cuts the text there, as
// Transformers does. The space behind the mark shows whether the template keeps white space; one
// that does not would have stripped that of the content.
absl::StatusOr<std::string> RenderTemplate(const TemplateDirectory& templates,
                                           const ChatRequest& request, const std::string& documents,
                                           const std::tm& now, const CancelFlag& cancel,
                                           MemoryGrant& memory) {
  if (!request.continue_final_message) {
    return RenderWhole(templates, request, documents, now, cancel, memory);
  }
  constexpr char kEnd[] = "\xEE\x80\x82\xEE\x80\x83";  // two characters of private use
  ChatRequest marked = request;
  std::optional<std::string>& content = marked.messages.back().content;
  const std::string place = absl::StrCat("messages[", marked.messages.size() - 1, "].content");
  if (absl::StripAsciiWhitespace(content.value_or("")).empty()) {
    return Refused(place, "is empty; continue_final_message needs a text to continue");
  }
  absl::StrAppend(&*content, kEnd, " ");
  ANNULUS_ASSIGN_OR_RETURN(std::string text,
                           RenderWhole(templates, marked, documents, now, cancel, memory));
  const size_t end = text.rfind(kEnd);
  if (end == std::string::npos) {
    return Refused(place, "is changed by the model's chat template, so it cannot be continued");
  }
  const bool keeps_space = absl::string_view(text).substr(end + sizeof(kEnd) - 1, 1) == " ";
  text.resize(end);
  if (!keeps_space) absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

absl::Status AllowIds(const std::string& text, MemoryGrant& memory) {
  // While the parts of the text and their ids are joined, there are two copies of them.
  constexpr size_t kPartsPerByte = 4 * sizeof(int32_t);
  return memory.Allow(text.capacity() + kPartsPerByte * text.size() + TokenizeMemory::Of(text));
}

absl::StatusOr<RenderedChat> RenderChat(const TemplateDirectory& templates,
                                        const Tokenizer& tokenizer, const ChatRequest& request,
                                        const std::tm& now, const CancelFlag& cancel,
                                        MemoryGrant& memory) {
  if (request.messages.empty()) return Refused("messages", "at least one message is needed");
  const auto render = [&](const ChatRequest& asked) {
    return RenderAsAsked(templates, tokenizer, asked, now, cancel, memory);
  };
  absl::StatusOr<RenderedChat> chat = render(request);
  if (!IsRefusedByTemplate(chat.status())) return chat;
  // Some templates have no system role (Gemma 2); only trying shows it. If the folded messages fail
  // too, their error is the real problem of the conversation.
  const std::optional<ChatRequest> folded = FoldSystem(request);
  if (!folded.has_value()) return chat;
  chat = render(*folded);
  if (chat.ok()) chat->system_folded = true;
  return chat;
}

}  // namespace annulus
