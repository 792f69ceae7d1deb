#ifndef ANNULUS_ENGINE_TEXT_BYTE_ALPHABET_H_
#define ANNULUS_ENGINE_TEXT_BYTE_ALPHABET_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// The byte alphabet of GPT-2 (Radford et al. 2019, released encoder): files of byte-level
// tokenizers write each byte as one printable character. Bytes that are printable in Latin-1 stand
// for themselves, the others, in order, for U+0100 and up.
//
// The bytes that `token`, valid UTF-8, stands for; nothing if one of its characters is outside the
// alphabet. Thread-safe.
std::optional<std::string> FromByteAlphabet(absl::string_view token);

// `bytes` in the alphabet. Thread-safe.
std::string ToByteAlphabet(absl::string_view bytes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_BYTE_ALPHABET_H_
