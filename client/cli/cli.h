#ifndef ANNULUS_CLIENT_CLI_CLI_H_
#define ANNULUS_CLIENT_CLI_CLI_H_

#include <string>
#include <vector>

#include "client/cli/session.h"

namespace annulus::client {

// Runs the command line `arguments` (without the program's name) and returns the exit code:
// - 0: success;
// - 1: standard output or an output file cannot be written;
// - 2: misuse;
// - 3: some of several files or requests failed;
// - 64 + the gRPC code: a call failed;
// - 130: interrupted through `cancellation`.
int RunCli(const std::vector<std::string>& arguments, Console& console,
           const Environment& environment, Cancellation& cancellation);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_CLI_H_
