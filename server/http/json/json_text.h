#ifndef ANNULUS_SERVER_HTTP_JSON_JSON_TEXT_H_
#define ANNULUS_SERVER_HTTP_JSON_JSON_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus::server {

// The size of a text as a JSON string, with its quotes.
size_t JsonStringSize(absl::string_view text);
// Appends a text in UTF-8 as a JSON string.
void AppendJsonString(absl::string_view text, std::string& json);
inline std::string JsonString(absl::string_view text) {
  std::string json;
  AppendJsonString(text, json);
  return json;
}
// Formats a number so that it reads back as the same float. "null" for NaN and infinity, which JSON
// does not have.
std::string JsonNumber(float number);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_JSON_JSON_TEXT_H_
