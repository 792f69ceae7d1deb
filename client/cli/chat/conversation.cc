#include "client/cli/chat/conversation.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/input/json_input.h"

namespace annulus::client {
namespace {

using Json = nlohmann::ordered_json;

// The string at `key`, if there is one.
std::optional<std::string> StringAt(const Json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

// The array at `key`; an empty one if `key` is absent, null if its value is not an array.
Json ArrayAt(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return Json::array();
  return found->is_array() ? *found : Json();
}

}  // namespace

std::string ConversationJson(const Conversation& conversation) {
  Json messages = Json::array();
  for (const v1::Message& message : conversation.messages) {
    messages.push_back({{"role", message.role()}, {"content", message.content()}});
  }
  const Json json = {{"documents", conversation.documents},
                     {"files", conversation.files},
                     {"messages", std::move(messages)}};
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

absl::StatusOr<Conversation> ParseConversation(absl::string_view what, const std::string& text) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is not a saved conversation: ", why, "; /save writes one"));
  };
  const std::optional<Json> parsed = ParseJson(text);
  if (!parsed.has_value()) return wrong("it is not JSON in UTF-8, or too deep");
  const Json& json = *parsed;
  if (!json.is_object()) return wrong("it is not a JSON object");
  const Json messages = ArrayAt(json, "messages");
  if (messages.is_null()) return wrong("\"messages\" is not an array");
  Conversation conversation;
  for (const auto& [key, names] :
       {std::pair("documents", &conversation.documents), std::pair("files", &conversation.files)}) {
    const Json array = ArrayAt(json, key);
    if (array.is_null()) return wrong(absl::StrCat("\"", key, "\" is not an array"));
    for (const Json& name : array) {
      if (!name.is_string())
        return wrong(absl::StrCat("\"", key, "\" has an entry that is not a name"));
      names->push_back(name.get<std::string>());
    }
  }
  for (const Json& entry : messages) {
    const std::optional<std::string> role = StringAt(entry, "role");
    const std::optional<std::string> content = StringAt(entry, "content");
    if (!role.has_value() || !content.has_value()) {
      return wrong(absl::StrCat("message ", conversation.messages.size() + 1,
                                " has no text \"role\" or no text \"content\""));
    }
    v1::Message& message = conversation.messages.emplace_back();
    message.set_role(*role);
    message.set_content(*content);
  }
  return conversation;
}

}  // namespace annulus::client
