#include "engine/text/answer/json_text.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus {

void AppendEscaped(char c, std::string& json) {
  constexpr absl::string_view kDigits = "0123456789abcdef";
  if (c == '"' || c == '\\') {
    json.push_back('\\');
    json.push_back(c);
  } else if (c == '\n') {
    json += "\\n";
  } else if (static_cast<unsigned char>(c) < 0x20) {
    absl::StrAppend(&json, c < 0x10 ? "\\u000" : "\\u001", kDigits.substr(c & 15, 1));
  } else {
    json.push_back(c);
  }
}

std::string JsonText(absl::string_view text) {
  std::string json = "\"";
  for (const char c : text) AppendEscaped(c, json);
  return json + "\"";
}

std::string JsonOfWord(absl::string_view value) {
  for (const auto& [python, json] :
       {std::pair("True", "true"), std::pair("False", "false"), std::pair("None", "null")}) {
    if (value == python) return json;
  }
  return nlohmann::json::accept(value.begin(), value.end()) ? std::string(value) : JsonText(value);
}

}  // namespace annulus
