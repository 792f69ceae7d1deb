#ifndef ANNULUS_TESTS_CLIENT_CLI_GENERATE_TEST_H_
#define ANNULUS_TESTS_CLIENT_CLI_GENERATE_TEST_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::testing {

// Commands that ask a server which answers all by one story, and files that they may name.
class GenerateTest : public ::testing::Test {
 protected:
  GenerateTest() { server_.SetReply(StoryReply()); }

  CliResult Run(std::vector<std::string> arguments, const CliInput& input = {}) {
    arguments.insert(arguments.end(), {"--server", server_.address()});
    return RunCliInProcess(arguments, input);
  }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  FakeServer server_;
  const TempDirectory directory_;
  const std::filesystem::path& folder_ = directory_.path();
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_CLIENT_CLI_GENERATE_TEST_H_
