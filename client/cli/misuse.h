#ifndef ANNULUS_CLIENT_CLI_MISUSE_H_
#define ANNULUS_CLIENT_CLI_MISUSE_H_

#include <CLI/CLI.hpp>
#include <string>

namespace annulus {

// What is wrong with a command line that `app` could not parse, with the nearest known name for an
// unknown one, and a second line that says whose --help tells more. Ends without a newline.
std::string DescribeMisuse(const CLI::App& app, const CLI::ParseError& error);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_MISUSE_H_
