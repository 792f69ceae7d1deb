#include "server/http/openai/tools.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"
#include "server/http/json/json_text.h"

namespace annulus::server {
namespace {

// Reads definitions of tools and notes the first thing that is not served.
class ToolCheck final : public nlohmann::json_sax<nlohmann::json> {
 public:
  const absl::Status& status() const { return status_; }
  bool any() const { return tool_ >= 0; }

  bool key(std::string& name) override {
    if (depth_ == 2) outer_ = name;
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ == 1) ++tool_;
    ++depth_;
    return true;
  }
  bool start_array(size_t) override {
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool end_array() override { return end_object(); }
  bool string(std::string& value) override {
    if (depth_ == 2 && outer_ == "type" && value != "function") {
      Refuse(".type", absl::StrCat(QuoteName(value), " is not supported: only \"function\""));
    }
    return true;
  }
  bool boolean(bool) override { return true; }
  bool null() override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  void Refuse(absl::string_view field, absl::string_view message) {
    if (status_.ok()) status_ = FieldError(absl::StrCat("tools[", tool_, "]", field), message);
  }

  int depth_ = 0;
  int tool_ = -1;
  std::string outer_;  // the last key of a tool
  absl::Status status_;
};

std::string CallJson(absl::string_view index, absl::string_view id, absl::string_view name,
                     absl::string_view arguments) {
  const std::string head =
      id.empty() ? "" : absl::StrCat("\"id\":", JsonString(id), ",\"type\":\"function\",");
  const std::string named = name.empty() ? "" : absl::StrCat("\"name\":", JsonString(name), ",");
  return absl::StrCat("{", index, head, "\"function\":{", named,
                      "\"arguments\":", JsonString(arguments), "}}");
}

absl::Status SetChoiceWord(absl::string_view choice, v1::GenerationSpec& spec) {
  v1::ToolChoice& to = *spec.mutable_tool_choice();
  if (choice == "auto") {
    to.set_mode(v1::TOOL_CHOICE_MODE_AUTO);
  } else if (choice == "none") {
    to.set_mode(v1::TOOL_CHOICE_MODE_NONE);
  } else if (choice == "required") {
    to.set_mode(v1::TOOL_CHOICE_MODE_REQUIRED);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteName(choice),
                     " is not supported: only \"auto\", \"none\", \"required\" "
                     "and an object that names a function"));
  }
  return absl::OkStatus();
}

absl::Status SetNamedTool(absl::string_view json, v1::GenerationSpec& spec) {
  const auto choice =
      nlohmann::json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  const auto text = [](const nlohmann::json& object, const char* name) -> std::string {
    const auto member = object.is_object() ? object.find(name) : object.end();
    if (!object.is_object() || member == object.end() || !member->is_string()) return "";
    return member->get<std::string>();
  };
  const std::string type = text(choice, "type");
  if (type != "function") {
    return absl::InvalidArgumentError(
        absl::StrCat("the type ", QuoteName(type), " is not supported: only \"function\""));
  }
  const bool nested = choice.contains("function");
  std::string name = text(nested ? choice["function"] : choice, "name");
  if (name.empty()) return absl::InvalidArgumentError("names no function");
  v1::ToolChoice& to = *spec.mutable_tool_choice();
  to.set_mode(v1::TOOL_CHOICE_MODE_REQUIRED);
  to.set_name(std::move(name));
  return absl::OkStatus();
}

}  // namespace

absl::Status SetTools(absl::string_view json, v1::GenerationSpec& spec) {
  if (json.empty() || json[0] != '[') return absl::InvalidArgumentError("must be an array");
  ToolCheck check;
  nlohmann::json::sax_parse(json.begin(), json.end(), &check);
  if (!check.status().ok()) return check.status();
  if (check.any()) spec.mutable_messages()->set_tools(std::string(json));
  return absl::OkStatus();
}

absl::Status SetToolChoice(v1::GenerationSpec& spec, const JsonValue& value) {
  return value.kind == JsonValue::kString ? SetChoiceWord(value.text, spec)
                                          : SetNamedTool(value.text, spec);
}

absl::Status SetParallelCalls(v1::GenerationSpec& spec, const JsonValue& value) {
  spec.set_parallel_tool_calls(value.truth);
  return absl::OkStatus();
}

std::string ToolCallsJson(const std::vector<ToolCallDelta>& calls) {
  std::string json = "[";
  for (const ToolCallDelta& call : calls) {
    absl::StrAppend(
        &json, json.size() > 1 ? "," : "",
        CallJson(absl::StrCat("\"index\":", call.index, ","), call.id, call.name, call.arguments));
  }
  return json + "]";
}

std::string ToolCallsJson(const std::vector<ToolCall>& calls) {
  std::string json = "[";
  for (const ToolCall& call : calls) {
    absl::StrAppend(&json, json.size() > 1 ? "," : "",
                    CallJson("", call.id, call.name, call.arguments));
  }
  return json + "]";
}

}  // namespace annulus::server
