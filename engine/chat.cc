#include "engine/chat.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/chat_documents.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// An error of a field of the messages.
absl::Status Refused(absl::string_view field, absl::string_view message) {
  return FieldError(absl::StatusCode::kInvalidArgument, absl::StrCat("messages.", field), message);
}

// A JSON string. Only for valid UTF-8.
std::string Quote(const std::string& text) { return nlohmann::json(text).dump(); }

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

// What variables are put together from: members of a JSON object, as text.
class ObjectText {
 public:
  void Add(absl::string_view name, absl::string_view json) {
    absl::StrAppend(&text_, text_.empty() ? "" : ",", "\"", name, "\":", json);
  }
  // All members of an object that CheckJson let pass.
  void AddMembers(const std::string& object) {
    const size_t begin = object.find('{') + 1;
    const std::string members = object.substr(begin, object.rfind('}') - begin);
    if (members.find_first_not_of(" \t\r\n") == std::string::npos) return;
    absl::StrAppend(&text_, text_.empty() ? "" : ",", members);
  }
  std::string Close() && { return absl::StrCat("{", text_, "}"); }

 private:
  std::string text_;
};

// As Transformers hands messages to templates: what is absent has no member, and reasoning goes by
// the two names that templates know.
absl::StatusOr<std::string> MessageJson(const ChatMessage& message, const std::string& place) {
  ObjectText object;
  const auto add = [&](const char* name, const std::optional<std::string>& text) -> absl::Status {
    if (!text.has_value()) return absl::OkStatus();
    ANNULUS_RETURN_IF_ERROR(CheckText(absl::StrCat(place, ".", name), *text));
    object.Add(name, Quote(*text));
    return absl::OkStatus();
  };
  ANNULUS_RETURN_IF_ERROR(add("role", message.role));
  ANNULUS_RETURN_IF_ERROR(add("content", message.content));
  ANNULUS_RETURN_IF_ERROR(add("name", message.name));
  if (message.reasoning.has_value()) {
    ANNULUS_RETURN_IF_ERROR(CheckText(absl::StrCat(place, ".reasoning"), *message.reasoning));
    object.Add("thinking", Quote(*message.reasoning));
    object.Add("reasoning_content", Quote(*message.reasoning));
  }
  if (message.tool_calls.has_value()) {
    ANNULUS_RETURN_IF_ERROR(
        CheckJson(absl::StrCat(place, ".tool_calls"), *message.tool_calls, '['));
    object.Add("tool_calls", *message.tool_calls);
  }
  ANNULUS_RETURN_IF_ERROR(add("tool_call_id", message.tool_call_id));
  return std::move(object).Close();
}

absl::StatusOr<std::string> Variables(const TemplateDirectory& templates,
                                      const ChatRequest& request, const std::string& documents) {
  std::string messages;
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const std::string place = absl::StrCat("messages[", i, "]");
    ANNULUS_ASSIGN_OR_RETURN(const std::string one, MessageJson(request.messages[i], place));
    absl::StrAppend(&messages, i > 0 ? "," : "", one);
  }
  ObjectText object;
  for (const auto& [name, token] : templates.special_tokens()) object.Add(name, Quote(token));
  object.Add("documents", documents);
  // Later members win: options may name special tokens and documents, not what follows here.
  if (request.template_options.has_value()) {
    ANNULUS_RETURN_IF_ERROR(CheckJson("template_options", *request.template_options, '{'));
    object.AddMembers(*request.template_options);
  }
  if (request.tools.has_value()) {
    ANNULUS_RETURN_IF_ERROR(CheckJson("tools", *request.tools, '['));
  }
  object.Add("messages", absl::StrCat("[", messages, "]"));
  object.Add("tools", request.tools.value_or("null"));
  object.Add("add_generation_prompt", request.add_generation_prompt ? "true" : "false");
  return std::move(object).Close();
}

}  // namespace

absl::StatusOr<std::string> RenderTemplate(const TemplateDirectory& templates,
                                           const ChatRequest& request, const std::string& documents,
                                           const std::tm& now, const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const ChatTemplate* chat_template,
                           templates.Select(request.tools.has_value()));
  ANNULUS_ASSIGN_OR_RETURN(const std::string variables, Variables(templates, request, documents));
  auto text =
      chat_template->Render(variables, now, RenderLimits::ForInput(variables.size()), cancel);
  if (absl::IsInvalidArgument(text.status())) {
    return FieldError(absl::StatusCode::kInvalidArgument, "messages", text.status().message());
  }
  return text;
}

absl::StatusOr<RenderedChat> RenderChat(const TemplateDirectory& templates,
                                        const Tokenizer& tokenizer, const ChatRequest& request,
                                        const std::tm& now, const CancelFlag& cancel) {
  if (request.messages.empty()) return Refused("messages", "at least one message is needed");
  if (!request.documents.empty()) {
    return RenderWithDocuments(templates, tokenizer, request, now, cancel);
  }
  RenderedChat chat;
  ANNULUS_ASSIGN_OR_RETURN(chat.text, RenderTemplate(templates, request, "null", now, cancel));
  ANNULUS_ASSIGN_OR_RETURN(chat.token_ids,
                           tokenizer.Encode(chat.text, /*add_special=*/false, cancel));
  return chat;
}

}  // namespace annulus
