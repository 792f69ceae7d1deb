#ifndef ANNULUS_ENGINE_TEXT_MODELS_BYTE_ALPHABET_H_
#define ANNULUS_ENGINE_TEXT_MODELS_BYTE_ALPHABET_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// The byte alphabet of GPT-2 (Radford et al. 2019, released encoder): files of byte-level
// tokenizers represent each byte as one printable character. Bytes that are printable in Latin-1
// represent themselves; the others become U+0100 and up, in order.
//
// FromByteAlphabet returns the bytes that `token` (valid UTF-8) represents, or nothing if one of
// its characters is not in the alphabet. Thread-safe.
std::optional<std::string> FromByteAlphabet(absl::string_view token);

// Returns `bytes` in the alphabet. Thread-safe.
std::string ToByteAlphabet(absl::string_view bytes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_MODELS_BYTE_ALPHABET_H_
