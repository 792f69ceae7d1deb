#include "client/format/text.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace annulus::client {
namespace {

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// Size in bytes of the well-formed character at the beginning of `text`; 0 if there is none.
size_t CharacterLength(absl::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  const size_t length = first < 0xC2   ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!IsContinuation(text[i])) return 0;
  }
  const auto second = static_cast<uint8_t>(text[1]);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool too_large = first == 0xF4 && second >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

// The code point of one well-formed character.
uint32_t CodePoint(absl::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first;
  uint32_t c = first & (0x7F >> character.size());
  for (const char byte : character.substr(1)) c = c << 6 | (static_cast<uint8_t>(byte) & 0x3F);
  return c;
}

// The optimal string alignment distance: how many insertions, deletions, replacements or swaps of
// neighbours turn one word into the other.
size_t Slips(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before, row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before = row;
    row = next;
  }
  return row.back();
}

// Keeps the blanks between words, except at line breaks.
std::string WrappedLine(absl::string_view line, size_t columns, const std::string& margin) {
  std::string result;
  size_t column = 0;
  while (!line.empty()) {
    const size_t blanks = std::min(line.find_first_not_of(' '), line.size());
    const size_t end = std::min(line.find(' ', blanks), line.size());
    const absl::string_view word = line.substr(blanks, end - blanks);
    const size_t width = DisplayWidth(word);
    if (column > 0 && column + blanks + width > columns) {
      const bool fits = margin.size() + width <= columns;
      absl::StrAppend(&result, "\n", fits ? margin : "", word);
      column = width + (fits ? margin.size() : 0);
    } else {
      absl::StrAppend(&result, line.substr(0, end));
      column += blanks + width;
    }
    line.remove_prefix(end);
  }
  return result;
}

}  // namespace

absl::StatusOr<std::string> Unescape(absl::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    ++i;
    const char kind = i < text.size() ? text[i] : '\0';
    switch (kind) {
      case 'n':
        result += '\n';
        break;
      case 't':
        result += '\t';
        break;
      case '\\':
        result += '\\';
        break;
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("unknown escape in \"", text,
                         "\": allowed are \\n (newline), \\t (tab) and \\\\ (backslash)"));
    }
  }
  return result;
}

std::optional<size_t> FindInvalidUtf8(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = CharacterLength(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::string WithoutControls(absl::string_view text) {
  constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const bool is_c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    const bool is_c1 =
        byte == 0xC2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) < 0xA0;
    if (is_c0 || is_c1) {
      absl::StrAppend(&result, kReplacement);
      i += is_c1 ? 1 : 0;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string OnOneLine(absl::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<size_t>(CharacterLength(text.substr(at)), 1);
    const uint32_t c = CodePoint(text.substr(at, length));
    const bool is_control = c < 0x20 || (c >= 0x7F && c < 0xA0);
    const bool ends_line = c == 0x2028 || c == 0x2029;
    const bool turns = c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
                       (c >= 0x2066 && c <= 0x2069);
    if (c == '\n') {
      absl::StrAppend(&result, "\\n");
    } else if (c == '\\') {
      absl::StrAppend(&result, "\\\\");
    } else if (is_control || ends_line || turns) {
      absl::StrAppendFormat(&result, "\\u%04x", c);
    } else {
      absl::StrAppend(&result, text.substr(at, length));
    }
    at += length;
  }
  return result;
}

std::string Wrapped(absl::string_view text, int columns, int indent) {
  const std::string margin(2 * indent < columns ? indent : 0, ' ');
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    lines.push_back(WrappedLine(line, static_cast<size_t>(std::max(columns, 1)), margin));
  }
  return absl::StrJoin(lines, "\n");
}

std::string WordWrap::Add(absl::string_view text, int columns) {
  constexpr size_t kLongestHeld = 32;
  columns_ = static_cast<size_t>(std::max(columns, 1));
  std::string result;
  for (const char c : text) {
    if (c == ' ' || c == '\n') {
      absl::StrAppend(&result, TakeWord());
      inside_ = false;
    }
    if (c == '\n') {
      absl::StrAppend(&result, blanks_, "\n");
      blanks_.clear();
      column_ = 0;
    } else if (c == ' ') {
      blanks_ += c;
    } else {
      if (word_.size() >= kLongestHeld && !IsContinuation(c)) {
        absl::StrAppend(&result, TakeWord());
        inside_ = true;
      }
      word_ += c;
    }
  }
  return result;
}

std::string WordWrap::TakeWord() {
  if (word_.empty()) return "";
  const size_t width = DisplayWidth(word_);
  const bool wraps = !inside_ && column_ > 0 && column_ + blanks_.size() + width > columns_;
  std::string result = absl::StrCat(wraps ? "\n" : blanks_, word_);
  // The terminal itself breaks what is longer than a line.
  column_ = ((wraps ? 0 : column_ + blanks_.size()) + width) % (columns_ + 1);
  blanks_.clear();
  word_.clear();
  return result;
}

std::string MeantWord(absl::string_view word, const std::vector<std::string>& known) {
  constexpr size_t kMostSlips = 3;
  std::string meant;
  size_t least = kMostSlips + 1;
  for (const std::string& candidate : known) {
    if (word.size() > candidate.size() + kMostSlips) continue;  // bounds the work for long words
    const size_t slips = Slips(word, candidate);
    if (slips >= least || 3 * slips > std::max(word.size(), candidate.size())) continue;
    least = slips;
    meant = candidate;
  }
  return meant;
}

size_t DisplayWidth(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); }));
}

}  // namespace annulus::client
