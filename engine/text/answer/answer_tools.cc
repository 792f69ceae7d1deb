#include "engine/text/answer/answer_tools.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostName = 256;

// The member of an object; null if there is none.
const Json& MemberOf(const Json& value, const char* name) {
  static const Json kNull;
  if (!value.is_object()) return kNull;
  const auto at = value.find(name);
  return at == value.end() ? kNull : *at;
}

bool IsNullOr(const Json& type, bool (*is)(const Json&)) {
  return is(type) || type == Json("null");
}

// Schemas that a program writes for a text: {"type": "string"}, the same with "null" in a list, an
// enum of strings, and anyOf or oneOf of such (pydantic's Optional[str]).
bool OnlyText(const Json& schema) {
  const auto is_string = [](const Json& type) { return type == Json("string"); };
  const Json& type = MemberOf(schema, "type");
  if (is_string(type)) return true;
  bool any = false;
  bool all = true;
  for (const Json& one : type.is_array() ? type : Json::array()) {
    any = any || is_string(one);
    all = all && IsNullOr(one, is_string);
  }
  for (const char* name : {"anyOf", "oneOf"}) {
    const Json& branches = MemberOf(schema, name);
    for (const Json& one : branches.is_array() ? branches : Json::array()) {
      const bool text = is_string(MemberOf(one, "type"));
      any = any || text;
      all = all && (text || MemberOf(one, "type") == Json("null"));
    }
  }
  const Json& values = MemberOf(schema, "enum");
  for (const Json& one : values.is_array() && type.is_null() ? values : Json::array()) {
    any = any || one.is_string();
    all = all && one.is_string();
  }
  return any && all;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const AnswerTools>> AnswerTools::Parse(absl::string_view json) {
  const Json list = Json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return absl::InvalidArgumentError("must be a JSON array");
  auto tools = std::make_shared<AnswerTools>();
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& inner = MemberOf(list[i], "function");
    const Json& function = inner.is_object() ? inner : list[i];
    const Json& name = MemberOf(function, "name");
    const auto refuse = [i](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat("tool ", i, " of the list ", why));
    };
    if (!name.is_string()) return refuse("has no function.name; each needs one");
    const auto& text = name.get_ref<const std::string&>();
    if (text.empty() || text.size() > kMostName) {
      return refuse(absl::StrCat("has a name of ", text.size(), " bytes; allowed are 1 to 256"));
    }
    tools->any_strict_ = tools->any_strict_ || MemberOf(function, "strict") == Json(true);
    Texts texts;
    const Json& properties = MemberOf(MemberOf(function, "parameters"), "properties");
    if (properties.is_object()) {
      for (const auto& [parameter, schema] : properties.items()) {
        if (OnlyText(schema)) texts.insert(parameter);
      }
    }
    if (!tools->tools_.emplace(text, std::move(texts)).second) {
      return refuse("has the name of an earlier one; give each its own");
    }
  }
  return tools;
}

bool AnswerTools::IsText(absl::string_view name, absl::string_view parameter) const {
  const auto tool = tools_.find(name);
  return tool != tools_.end() && tool->second.contains(parameter);
}

}  // namespace annulus
