#include <grpc/support/log.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/chat/edited_lines.h"
#include "client/cli/cli.h"
#include "client/cli/interrupt.h"

namespace {

// The width of the terminal window; 80 if unknown.
int TerminalColumns() {
  winsize size{};
  const bool has_size = (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ||
                         ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) &&
                        size.ws_col > 0;
  return has_size ? size.ws_col : 80;
}

}  // namespace

int main(int argc, char** argv) {
  annulus::client::Cancellation cancellation;
  const annulus::client::InterruptHandler interrupts(cancellation);
  // Turn off gRPC's own log: the user already sees each failure as a status.
  gpr_set_log_function([](gpr_log_func_args*) {});
  std::ios::sync_with_stdio(false);

  annulus::client::Console console{.in = std::cin,
                                   .out = std::cout,
                                   .err = std::cerr,
                                   .in_is_terminal = isatty(STDIN_FILENO) == 1,
                                   .out_is_terminal = isatty(STDOUT_FILENO) == 1,
                                   .err_is_terminal = isatty(STDERR_FILENO) == 1,
                                   .columns = &TerminalColumns,
                                   .edit_lines = &annulus::client::EditLines};
  const auto environment = [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  return annulus::client::RunCli(std::vector<std::string>(argv + 1, argv + argc), console,
                                 environment, cancellation);
}
