#include "server/http/tool_definitions.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"
#include "server/http/json_text.h"

namespace annulus::server {

absl::Status SetFlatTools(absl::string_view json, absl::string_view schema,
                          absl::FunctionRef<absl::StatusOr<bool>(absl::string_view type)> takes,
                          v1::GenerationSpec& spec) {
  using Json = nlohmann::ordered_json;
  Json list = Json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return absl::InvalidArgumentError("must be an array");
  Json tools = Json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    Json& given = list[i];
    const auto place = [i](absl::string_view member) {
      return absl::StrCat("tools[", i, "]", member);
    };
    if (!given.is_object()) return FieldError(place(""), "must be an object");
    std::string type;
    if (const auto at = given.find("type"); at != given.end() && !at->is_null()) {
      if (!at->is_string()) return FieldError(place(".type"), "must be a string");
      type = at->get<std::string>();
    }
    const absl::StatusOr<bool> is_function = takes(type);
    if (!is_function.ok()) return FieldError(place(".type"), is_function.status().message());
    if (!*is_function) continue;
    Json function = Json::object();
    for (const absl::string_view member :
         {absl::string_view("name"), absl::string_view("description"), schema,
          absl::string_view("strict")}) {
      const auto at = given.find(std::string(member));
      if (at == given.end() || at->is_null()) continue;
      function[member == schema ? "parameters" : std::string(member)] = std::move(*at);
    }
    if (!function.contains("name")) return FieldError(place(".name"), "is required");
    tools.push_back(Json{{"type", "function"}, {"function", std::move(function)}});
  }
  if (tools.empty()) return absl::OkStatus();
  spec.mutable_messages()->set_tools(tools.dump(-1, ' ', false, Json::error_handler_t::replace));
  return absl::OkStatus();
}

void AddToolCall(absl::string_view id, absl::string_view name, absl::string_view arguments,
                 v1::Message& message) {
  std::string& calls = *message.mutable_tool_calls();
  if (calls.empty()) {
    calls = "[";
  } else {
    calls.back() = ',';
  }
  absl::StrAppend(&calls, "{\"id\":", JsonString(id), ",\"type\":\"function\",\"function\":{",
                  "\"name\":", JsonString(name), ",\"arguments\":", JsonString(arguments), "}}]");
}

}  // namespace annulus::server
