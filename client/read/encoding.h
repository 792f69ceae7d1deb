#ifndef ANNULUS_CLIENT_READ_ENCODING_H_
#define ANNULUS_CLIENT_READ_ENCODING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::client {

struct Utf8Text {
  std::string text{};
  std::string converted_from{};  // name of the original encoding; empty if it was UTF-8
  bool guessed = false;          // no mark and no declaration named it
  int64_t replaced = 0;          // bytes that are not of that encoding, which became U+FFFD
  size_t first_replaced = 0;     // offset of the first of them in the original
};

struct EncodingNames {
  std::string
      declared{};        // by the text itself or by what carries it, a name for iconv; may be empty
  std::string forced{};  // by the user, above all others; may be empty
};

// Whether there is an encoding of that name.
bool IsEncoding(const std::string& name);

// Converts text of any encoding to UTF-8 and drops its byte order mark. The first of these that
// fits decides the encoding: `forced`; the byte order mark; UTF-8 if the text is valid UTF-8
// without the escapes of ISO-2022 and HZ; UTF-16 if the zero bytes lie so; `declared`; UTF-8 if
// nearly all of the text is; a guess, by uchardet and without control characters in the result.
// INVALID_ARGUMENT if it is not text or if no encoding fits. `what` names the text in messages.
absl::StatusOr<Utf8Text> ToUtf8(absl::string_view what, std::string bytes,
                                const EncodingNames& names = {});

// Number of control characters in UTF-8 text that no text has: all but tabs, ends of lines and
// pages, backspaces and escapes. They mean that an encoding was guessed wrongly or that it is no
// text.
int64_t CountControls(absl::string_view text);

// Whether part of a UTF-8 text has escapes of ISO-2022 or HZ, or such control characters, so that
// ToUtf8 has to see the whole text.
bool IsSuspicious(absl::string_view text);

// Sentences for the user on how a text was converted.
std::vector<std::string> DescribeConversion(absl::string_view what, const Utf8Text& text);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_ENCODING_H_
