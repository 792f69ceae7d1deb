#ifndef ANNULUS_CLIENT_CLI_COMPLETION_H_
#define ANNULUS_CLIENT_CLI_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace annulus {

// Scripts that complete the command line of `app` in a shell. Names of models and documents are
// asked of `annulus completion models` and `annulus completion documents` as they are needed.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_COMPLETION_H_
