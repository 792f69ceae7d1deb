#ifndef ANNULUS_CLIENT_CLI_LINE_COMPLETION_H_
#define ANNULUS_CLIENT_CLI_LINE_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace annulus::client {

// Return scripts that complete the command line of `app` in a shell. To complete names of models
// and documents, the scripts run `annulus completion models` and `annulus completion documents`.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_LINE_COMPLETION_H_
