#ifndef ANNULUS_CLIENT_CLI_EDITED_LINES_H_
#define ANNULUS_CLIENT_CLI_EDITED_LINES_H_

#include <memory>

#include "client/cli/line_source.h"

namespace annulus {

// Lines that a person edits on the terminal at standard input, by libedit: arrows, history of this
// run, ~/.editrc. Prompts go to standard error, so that standard output holds answers only.
std::unique_ptr<LineSource> EditLines();

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_EDITED_LINES_H_
