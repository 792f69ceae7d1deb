#include "engine/text/template/language/literals.h"

#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "engine/text/utf8.h"

namespace annulus::jinja {
namespace {

int DigitValue(char c) {
  if (absl::ascii_isdigit(c)) return c - '0';
  if (absl::ascii_isxdigit(c)) return absl::ascii_tolower(c) - 'a' + 10;
  return 99;
}

// Length of digits of `base` with single underscores between them; 0 if there is no digit. A first
// underscore counts where `after_prefix`.
size_t DigitsLength(absl::string_view text, int base, bool after_prefix = false) {
  size_t length = 0;
  size_t next = after_prefix && !text.empty() && text[0] == '_' ? 1 : 0;
  while (next < text.size() && DigitValue(text[next]) < base) {
    length = next + 1;
    next = length < text.size() && text[length] == '_' ? length + 1 : length;
  }
  return length;
}

// Length of ".5", "e-3" or ".5e-3" behind the digits of a number; 0 if it is none of them.
size_t FractionLength(absl::string_view text) {
  size_t length = 0;
  if (!text.empty() && text[0] == '.') {
    const size_t digits = DigitsLength(text.substr(1), 10);
    if (digits == 0) return 0;
    length = 1 + digits;
  }
  const absl::string_view rest = text.substr(length);
  if (rest.empty() || absl::ascii_tolower(rest[0]) != 'e') return length;
  const size_t sign = rest.size() > 1 && (rest[1] == '+' || rest[1] == '-') ? 1 : 0;
  const size_t digits = DigitsLength(rest.substr(1 + sign), 10);
  return digits == 0 ? length : length + 1 + sign + digits;
}

std::string WithoutUnderscores(absl::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != '_') digits.push_back(c);
  }
  return digits;
}

NumberLiteral Integer(absl::string_view digits, int base, size_t length) {
  NumberLiteral literal;
  literal.length = length;
  const std::string plain = WithoutUnderscores(digits);
  const auto result =
      std::from_chars(plain.data(), plain.data() + plain.size(), literal.integer, base);
  literal.too_large = result.ec != std::errc();
  return literal;
}

// Appends the code point of `digits` hexadecimal digits at the front of `text`.
bool AppendHex(absl::string_view text, size_t digits, std::string* out) {
  if (text.size() < digits) return false;
  char32_t code_point = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (!absl::ascii_isxdigit(text[i])) return false;
    code_point = code_point * 16 + static_cast<char32_t>(DigitValue(text[i]));
  }
  if (code_point > 0x10ffff || (code_point >= 0xd800 && code_point <= 0xdfff)) return false;
  AppendUtf8(code_point, out);
  return true;
}

// Bytes that an octal escape takes, at most three; 0 if it is none.
size_t AppendOctal(absl::string_view text, std::string* out) {
  size_t length = 0;
  char32_t code_point = 0;
  while (length < 3 && length < text.size() && DigitValue(text[length]) < 8) {
    code_point = code_point * 8 + static_cast<char32_t>(DigitValue(text[length++]));
  }
  if (length > 0) AppendUtf8(code_point, out);
  return length;
}

}  // namespace

std::optional<NumberLiteral> ReadNumber(absl::string_view text, bool may_be_float) {
  const size_t digits = DigitsLength(text, 10);
  if (digits == 0) return std::nullopt;
  const size_t fraction = may_be_float ? FractionLength(text.substr(digits)) : 0;
  if (fraction > 0) {
    NumberLiteral literal;
    literal.is_float = true;
    literal.length = digits + fraction;
    if (!absl::SimpleAtod(WithoutUnderscores(text.substr(0, literal.length)), &literal.number)) {
      return std::nullopt;
    }
    return literal;
  }
  if (text[0] != '0') return Integer(text.substr(0, digits), 10, digits);
  const char prefix = text.size() > 1 ? absl::ascii_tolower(text[1]) : '\0';
  const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
  if (base != 10) {
    const size_t length = DigitsLength(text.substr(2), base, /*after_prefix=*/true);
    if (length > 0) return Integer(text.substr(2, length), base, 2 + length);
  }
  // Zeros only: 007 is no number.
  return Integer("0", 10, DigitsLength(text, 1));
}

absl::string_view Unescape(absl::string_view text, std::string* out) {
  constexpr absl::string_view kFrom = "ntrabfv\\'\"";
  constexpr absl::string_view kTo = "\n\t\r\a\b\f\v\\'\"";
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out->push_back(text[i]);
      continue;
    }
    const char c = text[++i];
    const size_t simple = kFrom.find(c);
    const size_t hex_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (simple != absl::string_view::npos) {
      out->push_back(kTo[simple]);
    } else if (hex_digits > 0) {
      if (!AppendHex(text.substr(i + 1), hex_digits, out)) {
        return "a \\x, \\u or \\U escape is no character";
      }
      i += hex_digits;
    } else if (c == 'N') {
      return "\\N escapes are not supported";
    } else if (const size_t octal = AppendOctal(text.substr(i), out); octal > 0) {
      i += octal - 1;
    } else if (c != '\n') {
      out->push_back('\\');
      out->push_back(c);
    }
  }
  return "";
}

}  // namespace annulus::jinja
