#ifndef ANNULUS_CLIENT_CLI_LINE_MISUSE_H_
#define ANNULUS_CLIENT_CLI_LINE_MISUSE_H_

#include <CLI/CLI.hpp>
#include <string>

namespace annulus::client {

// Says what is wrong with a command line that `app` could not parse. For an unknown name, suggests
// the nearest known one. A last line says which --help to read. Does not end in a newline.
std::string DescribeMisuse(const CLI::App& app, const CLI::ParseError& error);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_LINE_MISUSE_H_
