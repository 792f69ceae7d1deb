#ifndef ANNULUS_CLIENT_CLI_ASK_TEXT_PARTS_H_
#define ANNULUS_CLIENT_CLI_ASK_TEXT_PARTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::client {

// Cuts UTF-8 text into parts of at most `most_bytes` bytes (less than 4 counts as 4) whose
// concatenation is the text. Cuts after the last paragraph that ends in the second half of a part;
// if there is none, after the last such line, else word, else character.
std::vector<absl::string_view> CutText(absl::string_view text, size_t most_bytes);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_TEXT_PARTS_H_
