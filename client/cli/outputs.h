#ifndef ANNULUS_CLIENT_CLI_OUTPUTS_H_
#define ANNULUS_CLIENT_CLI_OUTPUTS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "client/cli/session.h"

namespace annulus::client {

// Writes to the file at `path`, or to standard output if `path` is empty or "-". Returns the exit
// code: 0, or 1 if writing failed, after printing an error.
int WriteOutput(Session& session, const std::string& path, absl::string_view bytes);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_OUTPUTS_H_
