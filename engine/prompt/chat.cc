#include "engine/prompt/chat.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/base/tokenize_memory.h"
#include "engine/prompt/chat_documents.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

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
  // Later members win: options may replace special tokens and documents, but not the members below.
  if (request.template_options.has_value()) {
    ANNULUS_RETURN_IF_ERROR(CheckJson("template_options", *request.template_options, '{'));
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

}  // namespace

absl::StatusOr<std::string> RenderTemplate(const TemplateDirectory& templates,
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
    return FieldError(absl::StatusCode::kInvalidArgument, "messages", text.status().message());
  }
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

}  // namespace annulus
