#ifndef ANNULUS_CLIENT_FORMAT_TEXT_H_
#define ANNULUS_CLIENT_FORMAT_TEXT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::client {

// Replaces the escapes \n, \t and \\ by the characters that they stand for. INVALID_ARGUMENT for
// any other escape and for a backslash at the end.
absl::StatusOr<std::string> Unescape(absl::string_view text);

// Offset of the first byte that is not part of well-formed UTF-8 (RFC 3629: no overlong forms, no
// surrogates, at most U+10FFFF); nullopt if the text is well formed.
std::optional<size_t> FindInvalidUtf8(absl::string_view text);

// Replaces control characters other than newline and tab by U+FFFD, so that untrusted text cannot
// send commands to the terminal. `text` must be UTF-8 in whole characters.
std::string WithoutControls(absl::string_view text);

// Escapes untrusted text so that it fits on one line and can be decoded again: newline becomes \n
// and backslash \\; other control characters, line separators and characters that change the
// direction of writing become \u with four or more hexadecimal digits.
std::string OnOneLine(absl::string_view text);

// The width of UTF-8 text on a terminal, taken as one column per character.
size_t DisplayWidth(absl::string_view text);

// Breaks lines longer than `columns` between words. A continuation line begins with `indent`
// blanks, except if its first word would not fit after them, or if the blanks take half of the
// columns or more. Never breaks a word.
std::string Wrapped(absl::string_view text, int columns, int indent);

// Returns the word of `known` that `word` is most likely a misspelling of, or "" if none is close.
// Close means: at most 3 characters, and at most a third of the longer word, were added, dropped,
// replaced or swapped with a neighbour. The word with the fewest changes wins.
std::string MeantWord(absl::string_view word, const std::vector<std::string>& known);

// Wraps a text at its words while it arrives. A word is held back until it ends, but not if it is
// longer than 32 bytes. Not thread-safe.
class WordWrap {
 public:
  // Returns what can be written by now, for a terminal of `columns`.
  std::string Add(absl::string_view text, int columns);

  // Returns what was held back.
  std::string Finish() { return TakeWord(); }

 private:
  std::string TakeWord();

  size_t columns_ = 80;
  size_t column_ = 0;    // where the next character is written
  std::string blanks_;   // before word_
  std::string word_;     // what is held back
  bool inside_ = false;  // the beginning of word_ is written already
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_FORMAT_TEXT_H_
