#ifndef ANNULUS_CLIENT_CLI_LINE_MAN_PAGE_H_
#define ANNULUS_CLIENT_CLI_LINE_MAN_PAGE_H_

#include <CLI/CLI.hpp>
#include <string>

namespace annulus::client {

// Returns the manual page annulus(1) in man(7) format, generated from the text of --help.
std::string ManPage(const CLI::App& app);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_LINE_MAN_PAGE_H_
