#include "engine/text/template/library/characters.h"

#include <utf8proc.h>

#include <bitset>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "engine/text/utf8.h"

namespace annulus::jinja {
namespace {

utf8proc_category_t Category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

char32_t ToUpper(char32_t code_point) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code_point)));
}

char32_t ToLower(char32_t code_point) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
}

char32_t ToTitle(char32_t code_point) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code_point)));
}

bool IsCased(char32_t code_point) { return IsUpper(code_point) || IsLower(code_point); }

// Calls `map(code_point)` for every character and puts the results together.
template <typename Map>
std::string MapCharacters(absl::string_view text, Map map) {
  std::string result;
  result.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    AppendUtf8(map(NextCodePoint(text, &position)), &result);
  }
  return result;
}

// The characters that a strip takes off.
class StripSet {
 public:
  explicit StripSet(std::optional<absl::string_view> characters)
      : is_space_(!characters.has_value()) {
    const absl::string_view text = characters.value_or("");
    for (size_t position = 0; position < text.size();) {
      const char32_t c = NextCodePoint(text, &position);
      if (c < ascii_.size()) {
        ascii_.set(c);
      } else {
        others_.insert(c);
      }
    }
  }

  bool Contains(char32_t c) const {
    if (is_space_) return IsSpace(c);
    return c < ascii_.size() ? ascii_.test(c) : others_.contains(c);
  }

 private:
  const bool is_space_;
  std::bitset<128> ascii_;
  absl::flat_hash_set<char32_t> others_;
};

}  // namespace

absl::string_view NextCharacter(absl::string_view text, size_t* position) {
  const size_t begin = *position;
  NextCodePoint(text, position);
  return text.substr(begin, *position - begin);
}

size_t CountCharacters(absl::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

size_t OffsetOfCharacter(absl::string_view text, size_t index) {
  for (size_t offset = 0; offset < text.size(); ++offset) {
    if ((static_cast<unsigned char>(text[offset]) & 0xc0) == 0x80) continue;
    if (index-- == 0) return offset;
  }
  return text.size();
}

bool IsSpace(char32_t code_point) {
  if (code_point < 0x80) {
    return code_point == ' ' || (code_point >= 9 && code_point <= 13) ||
           (code_point >= 0x1c && code_point <= 0x1f);
  }
  return code_point == 0x85 || code_point == 0xa0 || Category(code_point) == UTF8PROC_CATEGORY_ZS ||
         code_point == 0x2028 || code_point == 0x2029;
}

bool IsPrintable(char32_t code_point) {
  if (code_point == ' ') return true;
  switch (Category(code_point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsAlpha(char32_t code_point) {
  const utf8proc_category_t category = Category(code_point);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t code_point) { return Category(code_point) == UTF8PROC_CATEGORY_ND; }

bool IsUpper(char32_t code_point) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(code_point)) != 0;
}

bool IsLower(char32_t code_point) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(code_point)) != 0;
}

absl::string_view StripLeft(absl::string_view text, std::optional<absl::string_view> characters) {
  const StripSet set(characters);
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    if (!set.Contains(NextCodePoint(text, &position))) return text.substr(begin);
  }
  return text.substr(text.size());
}

absl::string_view StripRight(absl::string_view text, std::optional<absl::string_view> characters) {
  const StripSet set(characters);
  while (!text.empty() && set.Contains(LastCodePoint(text))) {
    size_t begin = text.size() - 1;
    while ((static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    text = text.substr(0, begin);
  }
  return text;
}

std::string Upper(absl::string_view text) { return MapCharacters(text, ToUpper); }

std::string Lower(absl::string_view text) { return MapCharacters(text, ToLower); }

std::string Capitalize(absl::string_view text) {
  bool first = true;
  return MapCharacters(
      text, [&first](char32_t c) { return std::exchange(first, false) ? ToTitle(c) : ToLower(c); });
}

std::string Title(absl::string_view text) {
  bool behind_letter = false;
  return MapCharacters(text, [&behind_letter](char32_t c) {
    return std::exchange(behind_letter, IsCased(c)) ? ToLower(c) : ToTitle(c);
  });
}

std::string SwapCase(absl::string_view text) {
  return MapCharacters(text, [](char32_t c) { return IsUpper(c) ? ToLower(c) : ToUpper(c); });
}

size_t LineEndLength(absl::string_view text, size_t position) {
  size_t end = position;
  const char32_t code_point = NextCodePoint(text, &end);
  if (code_point == '\r' && end < text.size() && text[end] == '\n') return 2;
  const bool ends_line = (code_point >= 10 && code_point <= 13) ||
                         (code_point >= 0x1c && code_point <= 0x1e) || code_point == 0x85 ||
                         code_point == 0x2028 || code_point == 0x2029;
  return ends_line ? end - position : 0;
}

}  // namespace annulus::jinja
