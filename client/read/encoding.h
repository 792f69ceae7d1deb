#ifndef ANNULUS_CLIENT_READ_ENCODING_H_
#define ANNULUS_CLIENT_READ_ENCODING_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::client {

struct Utf8Text {
  std::string text;
  std::string converted_from;  // name of the original encoding; empty if it was UTF-8
};

// Converts text of any encoding to UTF-8 and drops its byte order mark. The first of these that
// fits decides the encoding: the byte order mark; UTF-8 if the text is valid UTF-8; `declared` (a
// name for iconv, may be empty); the guess of uchardet. INVALID_ARGUMENT if it is not text (it
// holds a zero byte) or if no encoding fits. `what` names the text in messages.
absl::StatusOr<Utf8Text> ToUtf8(absl::string_view what, std::string bytes,
                                const std::string& declared = "");

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_ENCODING_H_
