#include "engine/prompt/document_frame.h"

#include <array>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/utf8.h"

namespace annulus {
namespace {

constexpr absl::string_view kEndLetters = "endofdocument";

// For each count of matched letters: how many stay matched when the next letter does not match, the
// longest beginning of the words that is also an end of what was matched (Knuth, Morris and Pratt).
constexpr std::array<size_t, kEndLetters.size()> kLeft = [] {
  std::array<size_t, kEndLetters.size()> left{};
  for (size_t matched = 2; matched < kEndLetters.size(); ++matched) {
    size_t length = left[matched - 1];
    while (length > 0 && kEndLetters[length] != kEndLetters[matched - 1]) length = left[length];
    left[matched] = kEndLetters[length] == kEndLetters[matched - 1] ? length + 1 : 0;
  }
  return left;
}();

// Characters that could end a line, or show it in another order.
bool IsEscaped(char32_t c) {
  const bool is_control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  const bool ends_line = c == 0x2028 || c == 0x2029;
  const bool turns = c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
                     (c >= 0x2066 && c <= 0x2069);
  return is_control || ends_line || turns;
}

std::string Marked(const ChatDocument& document) {
  return document.mark.empty() ? "" : absl::StrCat(" (mark ", document.mark, ")");
}

}  // namespace

std::string FrameBegin(size_t number, const ChatDocument& document) {
  return absl::StrCat("# Document ", number, Marked(document), ": ", EscapedName(document.name),
                      "\n\n");
}

std::string FrameEnd(size_t number, const ChatDocument& document) {
  return absl::StrCat("\n\n# End of document ", number, Marked(document), "\n\n");
}

std::string EscapedName(absl::string_view name) {
  std::string escaped;
  for (size_t begin = 0, end = 0; begin < name.size(); begin = end) {
    const char32_t c = NextCodePoint(name, &end);
    if (c == '"' || c == '\\') {
      absl::StrAppend(&escaped, "\\", name.substr(begin, 1));
    } else if (c == '\n') {
      absl::StrAppend(&escaped, "\\n");
    } else if (IsEscaped(c)) {
      absl::StrAppendFormat(&escaped, "\\u%04x", static_cast<uint32_t>(c));
    } else {
      absl::StrAppend(&escaped, name.substr(begin, end - begin));
    }
  }
  return escaped;
}

void EndMarkScanner::Add(absl::string_view bytes) {
  for (const char byte : bytes) {
    if (found_) return;
    if (!absl::ascii_isalpha(static_cast<unsigned char>(byte))) continue;
    const char letter = absl::ascii_tolower(static_cast<unsigned char>(byte));
    while (matched_ > 0 && kEndLetters[matched_] != letter) matched_ = kLeft[matched_];
    if (kEndLetters[matched_] == letter) ++matched_;
    found_ = matched_ == kEndLetters.size();
  }
}

}  // namespace annulus
