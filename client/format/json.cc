#include "client/format/json.h"

#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace annulus::client {
namespace {

std::string Quote(absl::string_view value) {
  std::string quoted = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppendFormat(&quoted, "\\u%04x", byte);
    } else {
      quoted += c;
    }
  }
  quoted += '"';
  return quoted;
}

}  // namespace

void JsonWriter::Separate() {
  if (needs_comma_) text_ += ',';
  needs_comma_ = true;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  text_ += bracket;
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Scalar(absl::string_view value) {
  Separate();
  absl::StrAppend(&text_, value);
  return *this;
}

JsonWriter& JsonWriter::Key(absl::string_view key) {
  Separate();
  absl::StrAppend(&text_, Quote(key), ":");
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(absl::string_view value) { return Scalar(Quote(value)); }
JsonWriter& JsonWriter::Int(int64_t value) { return Scalar(absl::StrCat(value)); }
JsonWriter& JsonWriter::Bool(bool value) { return Scalar(value ? "true" : "false"); }
JsonWriter& JsonWriter::Null() { return Scalar("null"); }

JsonWriter& JsonWriter::Double(double value) { return Shortest(value); }

JsonWriter& JsonWriter::Float(float value) { return Shortest(value); }

template <typename Number>
JsonWriter& JsonWriter::Shortest(Number value) {
  if (!std::isfinite(value)) return Null();
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return Scalar(absl::string_view(digits.data(), static_cast<size_t>(end - digits.data())));
}

}  // namespace annulus::client
