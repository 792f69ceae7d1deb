#ifndef ANNULUS_CLIENT_CLI_CHAT_EDITED_LINES_H_
#define ANNULUS_CLIENT_CLI_CHAT_EDITED_LINES_H_

#include <memory>

#include "client/cli/chat/line_source.h"

namespace annulus::client {

// Returns a source of lines that a person edits on the terminal at standard input, with libedit:
// arrow keys, the history of this run, ~/.editrc. Prompts go to standard error, so that standard
// output has answers only.
std::unique_ptr<LineSource> EditLines();

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_CHAT_EDITED_LINES_H_
