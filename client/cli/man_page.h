#ifndef ANNULUS_CLIENT_CLI_MAN_PAGE_H_
#define ANNULUS_CLIENT_CLI_MAN_PAGE_H_

#include <CLI/CLI.hpp>
#include <string>

namespace annulus {

// annulus(1) in the language of man(7), made of what --help prints.
std::string ManPage(const CLI::App& app);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_MAN_PAGE_H_
