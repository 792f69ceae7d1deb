#ifndef ANNULUS_CLIENT_CLI_CLI_H_
#define ANNULUS_CLIENT_CLI_CLI_H_

#include <string>
#include <vector>

#include "client/cli/session.h"

namespace annulus {

// Runs the command line `arguments` (without the program's name) and returns the exit code: 0, 64 +
// the gRPC code of a failed call, 2 for misuse, 130 when interrupted by way of `cancellation`, 1 if
// standard output cannot be written.
int RunCli(const std::vector<std::string>& arguments, Console& console,
           const Environment& environment, Cancellation& cancellation);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_CLI_H_
