#ifndef ANNULUS_CLIENT_FORMAT_TEXT_H_
#define ANNULUS_CLIENT_FORMAT_TEXT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Interprets \n, \t and \\ as a shell user writes them. INVALID_ARGUMENT for any other escape and
// for a lone backslash at the end.
absl::StatusOr<std::string> Unescape(absl::string_view text);

// Offset of the first byte that is not part of well-formed UTF-8 (RFC 3629: no overlong forms, no
// surrogates, at most U+10FFFF); nothing if the text is well formed.
std::optional<size_t> FindInvalidUtf8(absl::string_view text);

// Replaces control characters other than newline and tab by U+FFFD, so that text from elsewhere
// cannot steer the terminal. `text` is UTF-8 in whole characters.
std::string WithoutControls(absl::string_view text);

// The same on one line, to be read back: a newline becomes \n, a backslash two, any other control
// character, line separator or character that turns the direction of writing \u and its number.
std::string OnOneLine(absl::string_view text);

// Characters of UTF-8 text, one column each.
size_t DisplayWidth(absl::string_view text);

// Breaks every line that does not fit in `columns` between words; what goes on below begins with
// `indent` blanks, or none where a word does not fit behind them or half of the columns would be
// blank. A longer word stays whole.
std::string Wrapped(absl::string_view text, int columns, int indent);

// The member of `known` that `word` is a slip of: at most 3 characters, and a third of the longer
// word, were added, dropped, replaced or swapped with a neighbour. Of several, the one that differs
// least; empty if there is none.
std::string MeantWord(absl::string_view word, const std::vector<std::string>& known);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_FORMAT_TEXT_H_
