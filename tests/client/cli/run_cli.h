#ifndef ANNULUS_TESTS_CLIENT_CLI_RUN_CLI_H_
#define ANNULUS_TESTS_CLIENT_CLI_RUN_CLI_H_

#include <map>
#include <string>
#include <vector>

#include "client/cancellation.h"

namespace annulus::testing {

struct CliInput {
  std::string in{};  // standard input
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  int columns = 100;
  std::map<std::string, std::string> environment{};
  client::Cancellation* cancellation = nullptr;  // absent: nothing interrupts
};

struct CliResult {
  int exit_code = 0;
  std::string out;
  std::string err;
};

// Runs a command line of `annulus` inside this process.
CliResult RunCliInProcess(const std::vector<std::string>& arguments, const CliInput& input = {});

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_CLIENT_CLI_RUN_CLI_H_
