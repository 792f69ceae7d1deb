#include "tests/client/cli/run_cli.h"

#include <optional>
#include <sstream>

#include "client/cli/cli.h"

namespace annulus::testing {

CliResult RunCliInProcess(const std::vector<std::string>& arguments, const CliInput& input) {
  std::istringstream in(input.in);
  std::ostringstream out, err;
  client::Console console{.in = in,
                          .out = out,
                          .err = err,
                          .in_is_terminal = input.in_is_terminal,
                          .out_is_terminal = input.out_is_terminal,
                          .err_is_terminal = input.err_is_terminal,
                          .columns = [&input] { return input.columns; }};
  const auto environment = [&](const char* name) -> std::optional<std::string> {
    const auto found = input.environment.find(name);
    return found == input.environment.end() ? std::nullopt : std::optional(found->second);
  };
  client::Cancellation never;
  client::Cancellation& cancellation = input.cancellation == nullptr ? never : *input.cancellation;
  const int exit_code = client::RunCli(arguments, console, environment, cancellation);
  return {exit_code, out.str(), err.str()};
}

}  // namespace annulus::testing
