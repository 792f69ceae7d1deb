#ifndef ANNULUS_CLIENT_CLI_TEXT_PARTS_H_
#define ANNULUS_CLIENT_CLI_TEXT_PARTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// Cuts `text` into parts of at most `most_bytes`, at least 4: between paragraphs if one ends in the
// second half of a part, else between lines, else between words, else between characters. Nothing
// is lost: the parts make the text again. `text` is UTF-8.
std::vector<absl::string_view> CutText(absl::string_view text, size_t most_bytes);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_TEXT_PARTS_H_
