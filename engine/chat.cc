#include "engine/chat.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

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
                                      const ChatRequest& request) {
  std::string messages;
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const std::string place = absl::StrCat("messages[", i, "]");
    ANNULUS_ASSIGN_OR_RETURN(const std::string one, MessageJson(request.messages[i], place));
    absl::StrAppend(&messages, i > 0 ? "," : "", one);
  }
  ObjectText object;
  for (const auto& [name, token] : templates.special_tokens()) object.Add(name, Quote(token));
  object.Add("documents", "null");
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

absl::StatusOr<std::string> Render(const TemplateDirectory& templates, const ChatRequest& request,
                                   const std::tm& now, const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const ChatTemplate* chat_template,
                           templates.Select(request.tools.has_value()));
  ANNULUS_ASSIGN_OR_RETURN(const std::string variables, Variables(templates, request));
  auto text =
      chat_template->Render(variables, now, RenderLimits::ForInput(variables.size()), cancel);
  if (absl::IsInvalidArgument(text.status())) {
    return FieldError(absl::StatusCode::kInvalidArgument, "messages", text.status().message());
  }
  return text;
}

// A text that occurs nowhere in the request, and that no template takes apart: it begins and ends
// with characters of private use.
std::string MakeMarker(const ChatRequest& request) {
  constexpr absl::string_view kBegin =
      "\xEE\x80\x80"
      "documents ";
  std::set<std::string> used;  // what stands behind kBegin, as long as the longest number
  const auto look_at = [&](const std::optional<std::string>& text) {
    if (!text.has_value()) return;
    const absl::string_view whole = *text;
    for (size_t at = whole.find(kBegin); at != whole.npos; at = whole.find(kBegin, at + 1)) {
      const std::string behind = text->substr(at + kBegin.size(), 20);
      used.insert(behind.substr(0, behind.find_first_not_of("0123456789")));
    }
  };
  look_at(request.tools);
  look_at(request.template_options);
  for (const ChatMessage& message : request.messages) {
    look_at(message.role);
    for (const auto* text : {&message.content, &message.name, &message.reasoning,
                             &message.tool_calls, &message.tool_call_id}) {
      look_at(*text);
    }
  }
  size_t number = 0;
  while (used.contains(absl::StrCat(number))) ++number;
  return absl::StrCat(kBegin, number, "\xEE\x80\x81");
}

// The text in front of the place for documents, and the text behind it. The template sees a mark
// instead of documents: it neither takes time for them nor changes them, and their ids can be those
// of the documents alone.
absl::StatusOr<std::pair<std::string, std::string>> RenderAround(const TemplateDirectory& templates,
                                                                 const ChatRequest& request,
                                                                 const std::tm& now,
                                                                 const CancelFlag& cancel) {
  ChatRequest marked = request;
  const std::string marker = MakeMarker(request);
  ChatMessage* first_user = nullptr;
  for (ChatMessage& message : marked.messages) {
    if (first_user == nullptr && message.role == "user") first_user = &message;
  }
  if (first_user == nullptr) {
    return Refused("messages",
                   "documents go into the first message of the role user: there is none");
  }
  first_user->content = absl::StrCat(marker, first_user->content.value_or(""));
  ANNULUS_ASSIGN_OR_RETURN(std::string text, Render(templates, marked, now, cancel));
  const size_t place = text.find(marker);
  if (place == std::string::npos || text.find(marker, place + 1) != std::string::npos) {
    return Refused("messages",
                   "the model's chat template does not write the first user message exactly once, "
                   "so there is no place for documents; put their text into a message");
  }
  std::string behind = text.substr(place + marker.size());
  text.resize(place);
  return std::make_pair(std::move(text), std::move(behind));
}

}  // namespace

absl::StatusOr<RenderedChat> RenderChat(const TemplateDirectory& templates,
                                        const Tokenizer& tokenizer, const ChatRequest& request,
                                        const std::tm& now, const CancelFlag& cancel) {
  if (request.messages.empty()) return Refused("messages", "at least one message is needed");
  RenderedChat chat;
  if (!request.with_documents) {
    ANNULUS_ASSIGN_OR_RETURN(chat.text, Render(templates, request, now, cancel));
    ANNULUS_ASSIGN_OR_RETURN(chat.token_ids,
                             tokenizer.Encode(chat.text, /*add_special=*/false, cancel));
    return chat;
  }
  ANNULUS_ASSIGN_OR_RETURN(const auto parts, RenderAround(templates, request, now, cancel));
  chat.text = absl::StrCat(parts.first, parts.second);
  ANNULUS_ASSIGN_OR_RETURN(chat.token_ids,
                           tokenizer.Encode(parts.first, /*add_special=*/false, cancel));
  chat.documents_at = chat.token_ids.size();
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<int32_t> behind,
                           tokenizer.Encode(parts.second, /*add_special=*/false, cancel));
  chat.token_ids.insert(chat.token_ids.end(), behind.begin(), behind.end());
  return chat;
}

}  // namespace annulus
