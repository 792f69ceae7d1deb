#ifndef ANNULUS_CLIENT_READ_CHARACTERS_H_
#define ANNULUS_CLIENT_READ_CHARACTERS_H_

#include <algorithm>
#include <initializer_list>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace annulus::client {

// Of one byte of UTF-8.
inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }
inline bool IsLetterOrDigit(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }
// Whether it can be part of a word: other characters than ASCII count too.
inline bool IsWordByte(char c) { return IsLetterOrDigit(c) || (c & 0x80) != 0; }

inline bool IsOneOf(absl::string_view name, std::initializer_list<absl::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Tick boxes.
inline constexpr char kTicked[] = "\xE2\x98\x91";
inline constexpr char kUnticked[] = "\xE2\x98\x90";

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_CHARACTERS_H_
