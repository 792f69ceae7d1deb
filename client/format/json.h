#ifndef ANNULUS_CLIENT_FORMAT_JSON_H_
#define ANNULUS_CLIENT_FORMAT_JSON_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus::client {

// Writes one JSON value (RFC 8259) on one line, in the order of the calls. The caller must balance
// begins and ends, and give each value in an object a key. Doubles get the fewest digits that parse
// back to the same value; infinities and NaN become null.
class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(absl::string_view key);
  // `value` is UTF-8.
  JsonWriter& String(absl::string_view value);
  JsonWriter& Int(int64_t value);
  JsonWriter& Double(double value);
  // Writes the shortest text that parses back to the same float: 0.6, not 0.6000000238418579.
  JsonWriter& Float(float value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();

  const std::string& text() const { return text_; }

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  JsonWriter& Scalar(absl::string_view value);
  template <typename Number>
  JsonWriter& Shortest(Number value);
  void Separate();

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_FORMAT_JSON_H_
