#include "server/http/tool_definitions.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/json/json_text.h"

namespace annulus::server {
namespace {

// The size of the string that `json` begins with.
size_t StringSize(absl::string_view json) {
  size_t end = 1;
  while (json[end] != '"') end += json[end] == '\\' ? 2 : 1;
  return end + 1;
}

// The size of the value that `json` begins with. A comma or a bracket stands behind it.
size_t ValueSize(absl::string_view json) {
  size_t open = 0;
  size_t end = 0;
  while (true) {
    const char c = json[end];
    const bool closes = c == ']' || c == '}';
    if (open == 0 && (closes || c == ',')) return end;
    if (c == '[' || c == '{') ++open;
    if (closes) --open;
    end += c == '"' ? StringSize(json.substr(end)) : 1;
  }
}

// Calls each(key, value) for the values of an array or object. A key has its quotes; in arrays it
// is empty. Schemas stay as they are: a tree of them would take time with the square of their keys,
// or lose the keys' order.
absl::Status ForEach(
    absl::string_view json,
    absl::FunctionRef<absl::Status(absl::string_view key, absl::string_view value)> each) {
  const bool is_object = json[0] == '{';
  json.remove_prefix(1);
  while (json.size() > 1) {
    const absl::string_view key = json.substr(0, is_object ? StringSize(json) : 0);
    json.remove_prefix(is_object ? key.size() + 1 : 0);
    const absl::string_view value = json.substr(0, ValueSize(json));
    json.remove_prefix(value.size() + 1);
    ANNULUS_RETURN_IF_ERROR(each(key, value));
  }
  return absl::OkStatus();
}

// A member of a definition: as it is given, as templates know it, its value.
struct ToolMember {
  std::string given;
  absl::string_view name;
  absl::string_view json = {};
};

// Appends the definition `json`, which stands in `place`, to the array `tools`.
absl::Status AddFlatTool(absl::string_view json, absl::string_view place, absl::string_view schema,
                         absl::FunctionRef<absl::StatusOr<bool>(absl::string_view type)> takes,
                         std::string& tools) {
  if (json[0] != '{') return FieldError(place, "must be an object");
  absl::string_view type;
  std::array<ToolMember, 4> members = {{{"\"name\"", "name"},
                                        {"\"description\"", "description"},
                                        {absl::StrCat("\"", schema, "\""), "parameters"},
                                        {"\"strict\"", "strict"}}};
  ANNULUS_RETURN_IF_ERROR(ForEach(json, [&](absl::string_view key, absl::string_view value) {
    if (value == "null") value = "";
    if (key == "\"type\"") type = value;
    const auto member = std::find_if(members.begin(), members.end(),
                                     [&](const ToolMember& one) { return one.given == key; });
    if (member != members.end()) member->json = value;
    return absl::OkStatus();
  }));
  if (!type.empty() && type[0] != '"') {
    return FieldError(absl::StrCat(place, ".type"), "must be a string");
  }
  const absl::StatusOr<bool> is_function =
      takes(type.empty() ? "" : nlohmann::json::parse(type).get<std::string>());
  if (!is_function.ok()) {
    return FieldError(absl::StrCat(place, ".type"), is_function.status().message());
  }
  if (!*is_function) return absl::OkStatus();
  if (members[0].json.empty()) return FieldError(absl::StrCat(place, ".name"), "is required");
  absl::StrAppend(&tools, tools.size() > 1 ? "," : "", "{\"type\":\"function\",\"function\":");
  char separator = '{';
  for (const ToolMember& member : members) {
    if (member.json.empty()) continue;
    tools.push_back(std::exchange(separator, ','));
    absl::StrAppend(&tools, "\"", member.name, "\":", member.json);
  }
  absl::StrAppend(&tools, "}}");
  return absl::OkStatus();
}

}  // namespace

absl::Status SetFlatTools(absl::string_view json, absl::string_view schema,
                          absl::FunctionRef<absl::StatusOr<bool>(absl::string_view type)> takes,
                          v1::GenerationSpec& spec) {
  if (json[0] != '[') return absl::InvalidArgumentError("must be an array");
  std::string tools = "[";
  size_t count = 0;
  ANNULUS_RETURN_IF_ERROR(ForEach(json, [&](absl::string_view, absl::string_view tool) {
    return AddFlatTool(tool, absl::StrCat("tools[", count++, "]"), schema, takes, tools);
  }));
  if (tools.size() == 1) return absl::OkStatus();
  tools.push_back(']');
  spec.mutable_messages()->set_tools(std::move(tools));
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
