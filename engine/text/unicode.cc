#include "engine/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/text/utf8.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

constexpr char32_t kFirstMark = 0x300;  // below it nothing reorders and nothing composes backwards

bool IsMark(utf8proc_category_t category) {
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool IsConjoiningJamo(char32_t c) {
  return (c >= 0x1100 && c <= 0x11FF) || (c >= 0xA960 && c <= 0xA97F) ||
         (c >= 0xD7B0 && c <= 0xD7FF);
}

bool Composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }
bool IsCompatible(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

utf8proc_option_t Options(NormalForm form) {
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE |
                                        (Composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (IsCompatible(form) ? UTF8PROC_COMPAT : 0));
}

constexpr size_t kLongestDecomposition = 18;  // U+FDFA

struct Decomposition {
  utf8proc_int32_t parts[kLongestDecomposition];
  utf8proc_ssize_t count;
};

Decomposition Decompose(NormalForm form, char32_t c) {
  Decomposition result;
  int unused = 0;
  result.count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), result.parts,
                                         kLongestDecomposition, Options(form), &unused);
  ANNULUS_CHECK(result.count >= 1 &&
                result.count <= static_cast<utf8proc_ssize_t>(kLongestDecomposition))
      << utf8proc_errmsg(result.count);
  return result;
}

bool Decomposes(const utf8proc_property_t* property) {
  return property->decomp_seqindex != UINT16_MAX;
}

// Whether the text before `c` cannot change what `c` and its followers normalize to. U+11A7 is the
// one jamo of which this must be said: it is the base of an index range, no trailing consonant, and
// utf8proc 2.8 would drop it after a syllable.
bool StartsSegment(NormalForm form, char32_t c) {
  if (c < kFirstMark || c == 0x11A7) return true;
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (IsCompatible(form) && Decomposes(property)) {
    c = static_cast<char32_t>(Decompose(form, c).parts[0]);
    property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  }
  return !IsConjoiningJamo(c) && property->combining_class == 0 &&
         !IsMark(static_cast<utf8proc_category_t>(property->category));
}

// Whether `c` alone is its own normal form.
bool IsStableAlone(NormalForm form, char32_t c) {
  if (c < (form == NormalForm::kNfc ? kFirstMark : 0x80)) return true;
  const bool is_syllable = c >= 0xAC00 && c <= 0xD7A3;  // decomposed by a rule
  return !Decomposes(utf8proc_get_property(static_cast<utf8proc_int32_t>(c))) &&
         (Composes(form) || !is_syllable);
}

class SegmentNormalizer {
 public:
  explicit SegmentNormalizer(NormalForm form) : form_(form) {}

  // Normalizes `segment`, which nothing around it can change; the result is valid until the next
  // call.
  absl::string_view Run(absl::string_view segment) {
    code_points_.clear();
    for (size_t position = 0; position < segment.size();) {
      const Decomposition next = Decompose(form_, NextCodePoint(segment, &position));
      code_points_.insert(code_points_.end(), next.parts, next.parts + next.count);
    }
    SortMarks();
    if (Composes(form_)) {
      const utf8proc_ssize_t composed = utf8proc_normalize_utf32(
          code_points_.data(), static_cast<utf8proc_ssize_t>(code_points_.size()), Options(form_));
      ANNULUS_CHECK(composed >= 0) << utf8proc_errmsg(composed);
      code_points_.resize(static_cast<size_t>(composed));
    }
    text_.clear();
    for (const utf8proc_int32_t c : code_points_) AppendUtf8(static_cast<char32_t>(c), &text_);
    return text_;
  }

 private:
  // Canonical ordering. The library's own takes quadratic time in the length of a run of marks.
  void SortMarks() {
    const auto combining_class = [](utf8proc_int32_t c) {
      return utf8proc_get_property(c)->combining_class;
    };
    const auto is_starter = [&](utf8proc_int32_t c) { return combining_class(c) == 0; };
    auto begin = code_points_.begin();
    while (begin != code_points_.end()) {
      begin = std::find_if_not(begin, code_points_.end(), is_starter);
      const auto end = std::find_if(begin, code_points_.end(), is_starter);
      std::stable_sort(begin, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
        return combining_class(a) < combining_class(b);
      });
      begin = end;
    }
  }

  NormalForm form_;
  std::vector<utf8proc_int32_t> code_points_;
  std::string text_;
};

// Offset behind the segment that starts at `begin`; *single is its only character, or 0.
size_t SegmentEnd(NormalForm form, absl::string_view text, size_t begin, char32_t* single) {
  size_t end = begin;
  *single = NextCodePoint(text, &end);
  while (end < text.size()) {
    size_t next = end;
    if (StartsSegment(form, NextCodePoint(text, &next))) break;
    end = next;
    *single = 0;
  }
  return end;
}

}  // namespace

bool IsWhitespace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

size_t WhitespacePrefix(absl::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    size_t next = length;
    if (!IsWhitespace(NextCodePoint(text, &next))) break;
    length = next;
  }
  return length;
}

size_t WhitespaceSuffix(absl::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && IsWhitespace(LastCodePoint(text.substr(0, begin)))) {
    do --begin;
    while (IsUtf8Continuation(text[begin]));
  }
  return text.size() - begin;
}

bool IsWordCharacter(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  // The symbols that are Alphabetic: circled and squared Latin letters.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

void AppendLowercase(char32_t c, std::string* out) {
  if (c == 0x130) {
    out->append("i\u0307");  // the one character with two in lower case
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void Normalize(NormalForm form, std::string* text) {
  // First byte of the first character that can change: U+0300 or U+0080.
  const uint8_t first_lead = form == NormalForm::kNfc ? 0xCC : 0xC2;
  const auto suspect = std::find_if(text->begin(), text->end(), [&](char byte) {
    return static_cast<uint8_t>(byte) >= first_lead;
  });
  if (suspect == text->end()) return;

  std::string result;
  size_t kept = 0;  // text before it is in `result`
  SegmentNormalizer normalizer(form);
  for (size_t begin = 0; begin < text->size();) {
    char32_t single = 0;
    const size_t end = SegmentEnd(form, *text, begin, &single);
    if (single == 0 || !IsStableAlone(form, single)) {
      const auto segment = absl::string_view(*text).substr(begin, end - begin);
      const absl::string_view normal = normalizer.Run(segment);
      if (normal != segment) {
        result.append(*text, kept, begin - kept);
        result.append(normal.data(), normal.size());
        kept = end;
      }
    }
    begin = end;
  }
  if (kept == 0) return;
  result.append(*text, kept, std::string::npos);
  *text = std::move(result);
}

size_t LastNormalBoundary(NormalForm form, absl::string_view text) {
  for (size_t end = text.size(); end > 0;) {
    --end;
    while (IsUtf8Continuation(text[end])) --end;
    size_t position = end;
    if (StartsSegment(form, NextCodePoint(text, &position))) return end;
  }
  return 0;
}

}  // namespace annulus
