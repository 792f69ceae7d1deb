#ifndef ANNULUS_ENGINE_TEXT_ANSWER_JSON_TEXT_H_
#define ANNULUS_ENGINE_TEXT_ANSWER_JSON_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// Appends a byte of a text as it stands inside a JSON string.
void AppendEscaped(char c, std::string& json);

// A text as a JSON string.
std::string JsonText(absl::string_view text);

// What a model writes as a value, without quotes, as JSON: itself if it is JSON, the JSON of
// Python's constants, or else a string.
std::string JsonOfWord(absl::string_view value);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ANSWER_JSON_TEXT_H_
