#include "server/http/json/json_text.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"

namespace annulus::server {
namespace {

// The letter that stands for a character behind a backslash; 0: none.
char ShortEscape(char c) {
  switch (c) {
    case '"':
    case '\\':
      return c;
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20; }

}  // namespace

size_t JsonStringSize(absl::string_view text) {
  size_t size = 2 + text.size();
  for (const char c : text) {
    if (ShortEscape(c) != 0) {
      size += 1;
    } else if (IsControl(c)) {
      size += 5;
    }
  }
  return size;
}

void AppendJsonString(absl::string_view text, std::string& json) {
  json.push_back('"');
  size_t plain = 0;  // where the text begins that is not appended yet
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char letter = ShortEscape(c);
    if (letter == 0 && !IsControl(c)) continue;
    json.append(text.data() + plain, i - plain);
    plain = i + 1;
    if (letter != 0) {
      json.push_back('\\');
      json.push_back(letter);
    } else {
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<int>(c));
    }
  }
  json.append(text.data() + plain, text.size() - plain);
  json.push_back('"');
}

std::string JsonNumber(float number) {
  if (!std::isfinite(number)) return "null";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), number);
  return std::string(digits, end.ptr);
}

}  // namespace annulus::server
