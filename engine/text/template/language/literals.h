#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_LITERALS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_LITERALS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus::jinja {

struct NumberLiteral {
  size_t length = 0;  // bytes of text it takes
  bool is_float = false;
  bool too_large = false;  // an integer beyond 64 bits
  int64_t integer = 0;
  double number = 0;
};

// The number at the start of `text`, if any: digits with underscores between them, or 0x, 0o and
// 0b; with `may_be_float` also a fraction or an exponent. No sign.
std::optional<NumberLiteral> ReadNumber(absl::string_view text, bool may_be_float);

// Sets `out` to `text` with Python's escapes resolved, unknown ones kept. Returns an error, or "".
absl::string_view Unescape(absl::string_view text, std::string* out);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_LITERALS_H_
