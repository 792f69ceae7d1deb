#include "client/cli/line/user_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::client {
namespace {

using testing::CliResult;
using ::testing::ElementsAre;
using testing::FakeServer;
using ::testing::HasSubstr;

class UserConfigTest : public ::testing::Test {
 protected:
  UserConfigTest() {
    server_.SetReply(testing::StoryReply());
    std::filesystem::create_directory(directory_.path() / "annulus");
  }

  std::string Path() { return directory_.path() / "annulus" / "config.yaml"; }
  CliResult Run(const std::string& config, const std::vector<std::string>& arguments,
                std::map<std::string, std::string> environment = {}) {
    std::ofstream(Path(), std::ios::binary) << config;
    return RunAsIs(arguments, std::move(environment));
  }
  CliResult RunAsIs(const std::vector<std::string>& arguments,
                    std::map<std::string, std::string> environment = {}) {
    environment["XDG_CONFIG_HOME"] = directory_.path();
    return testing::RunCliInProcess(arguments, {.environment = std::move(environment)});
  }
  std::string Server(const std::string& key = "server") {
    return key + ": " + server_.address() + "\n";
  }

  FakeServer server_;
  const testing::TempDirectory directory_;
};

// What follows "--" is no flag, wherever it stands, and what the file says goes before it.
TEST_F(UserConfigTest, DashesMayStandAnywhere) {
  server_.AddDocument("stored", "text");
  const std::string config = Server() + "temperature: 0.5\n";
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"--", "ask", "stored", "-why?"},
        {"ask", "--", "stored", "-why?"},
        {"ask", "stored", "--", "-why?"},
        {"ask", "stored", "--quiet", "--", "-why?"}}) {
    const CliResult result = Run(config, line);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(server_.specs().back().messages().messages(0).content(), "-why?");
    EXPECT_EQ(server_.specs().back().sampling().temperature(), 0.5F);
  }
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"--", "documents", "show", "stored"},
        {"documents", "--", "show", "stored"},
        {"documents", "show", "--", "stored"},
        {"documents", "show", "stored", "--"}}) {
    const CliResult result = Run(config, line);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("stored"));
  }
}

// Becomes another user if this is root, who may search every folder.
class NobodyMeanwhile {
 public:
  NobodyMeanwhile() {
    if (was_root_) {
      EXPECT_EQ(seteuid(65534), 0);
    }
  }
  ~NobodyMeanwhile() {
    if (was_root_) {
      EXPECT_EQ(seteuid(0), 0);
    }
  }

 private:
  const bool was_root_ = geteuid() == 0;
};

// As under sudo -u, with the HOME of the user who called it.
TEST_F(UserConfigTest, GoesOnWithoutAFileThatIsOutOfReach) {
  const std::filesystem::path home = directory_.path() / "home";
  std::filesystem::create_directory(home);
  std::filesystem::permissions(home, std::filesystem::perms::none);
  CliResult result, with_profile;
  {
    const NobodyMeanwhile nobody;
    const std::map<std::string, std::string> environment = {{"HOME", home},
                                                            {"ANNULUS_SERVER", server_.address()}};
    result = testing::RunCliInProcess({"complete", "Once"}, {.environment = environment});
    with_profile = testing::RunCliInProcess({"complete", "Once", "--profile", "lab"},
                                            {.environment = environment});
  }
  std::filesystem::permissions(home, std::filesystem::perms::owner_all);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("has no access to the folder of " + home.string()));
  EXPECT_EQ(with_profile.exit_code, 2);
  EXPECT_THAT(with_profile.err, HasSubstr("config.yaml: cannot be read: "));
}

TEST_F(UserConfigTest, SaysWhatTheCommandLineDoesNot) {
  const std::string config = Server() +
                             "temperature: 0.5\nmax_tokens: 7\nmodel: instruct\n"
                             "stop: ['\\n', x]\nquiet: true\n";
  CliResult result = Run(config, {"complete", "--max-tokens", "9", "--", "Once"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  v1::GenerationSpec spec = server_.specs().back();
  EXPECT_EQ(spec.text(), "Once");
  EXPECT_EQ(spec.model(), "instruct");
  EXPECT_EQ(spec.sampling().temperature(), 0.5F);
  EXPECT_EQ(spec.sampling().max_tokens(), 9);
  EXPECT_THAT(spec.sampling().stop(), ElementsAre("\n", "x"));

  result = Run(config, {"complete", "Once", "--stop", "y"});
  EXPECT_THAT(server_.specs().back().sampling().stop(), ElementsAre("y"));
  // Commands take what they know; --tokenizer goes without --model.
  EXPECT_EQ(Run(config, {"models"}).exit_code, 0);
  EXPECT_THAT(Run(config, {"tokenize", "--tokenizer", "none"}).err,
              ::testing::Not(HasSubstr("excludes")));
}

TEST_F(UserConfigTest, FlagsAndVariablesComeFirst) {
  const std::string config = "server: 127.0.0.1:1\ntoken: from-file\ntimeout: 2\n";
  EXPECT_EQ(Run(config, {"models"}).exit_code, 64 + grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Run(config, {"models", "--server", server_.address()}).exit_code, 0);
  EXPECT_EQ(server_.authorization(), "Bearer from-file");
  EXPECT_EQ(Run(config, {"--server", server_.address(), "models"}).exit_code, 0);
  const std::map<std::string, std::string> environment = {{"ANNULUS_SERVER", server_.address()},
                                                          {"ANNULUS_TOKEN", "from-variable"}};
  EXPECT_EQ(Run(config, {"models"}, environment).exit_code, 0);
  EXPECT_EQ(server_.authorization(), "Bearer from-variable");
}

TEST_F(UserConfigTest, ProfilesTakeThePlaceOfWhatStandsAbove) {
  const std::string config = Server() +
                             "temperature: 0.5\nprofile: calm\nprofiles:\n"
                             "  calm: {temperature: 0, system: Be short.}\n"
                             "  wild:\n    temperature: 1\n";
  const auto temperature = [&](std::vector<std::string> more, const char* variable = nullptr) {
    std::vector<std::string> arguments = {"complete", "Once"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::map<std::string, std::string> environment;
    if (variable != nullptr) environment["ANNULUS_PROFILE"] = variable;
    const CliResult result = Run(config, arguments, environment);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return server_.specs().back().sampling().temperature();
  };
  EXPECT_EQ(temperature({}), 0);
  EXPECT_EQ(temperature({"--profile", "wild"}), 1);
  EXPECT_EQ(temperature({}, "wild"), 1);
  EXPECT_EQ(temperature({"--profile", "wild", "-t", "0.25"}), 0.25F);
  const CliResult result = Run(config, {"models", "--profile", "wilder"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("has no profile wilder; it has calm, wild"));
}

TEST_F(UserConfigTest, AWrongFileIsOneSentence) {
  const auto refuses = [&](const std::string& config, const char* message) {
    const CliResult result = Run(config, {"complete", "Once", "--server", server_.address()});
    EXPECT_EQ(result.exit_code, 2) << config.substr(0, 100);
    EXPECT_THAT(result.err, HasSubstr(Path())) << config.substr(0, 100);
    EXPECT_THAT(result.err, HasSubstr(message)) << config.substr(0, 100);
    EXPECT_LT(result.err.size(), Path().size() + 200);
  };
  refuses("temprature: 0\n", ":1: unknown key: temprature; did you mean temperature?");
  refuses("\noutput: x\n", ":2: unknown key: output");
  refuses("temperature: warm\n", "warm");
  refuses("temperature: [0, 1]\n", "takes one value");
  refuses("temperature: {a: b}\n", "needs a single value");
  refuses("temperature:\n", "needs a single value");
  refuses("quiet: maybe\n", "true or false");
  refuses("temperature: 0\ntemperature: 1\n", "is given twice");
  refuses("[1, 2]\n", "must have lines like");
  refuses("profiles: 3\nprofile: a\n", "profiles must have lines like");
  refuses("a: [\n", "not valid YAML");
  refuses("\xFF\n", "is not UTF-8");
  refuses(std::string(2 << 20, '#'), "larger than 1 MiB");
  refuses(std::string(100000, '['), "not valid YAML");
  refuses(std::string(100000, '{') + "\n", "not valid YAML");
  std::string aliases = "a: &a [x]\n";
  for (char c = 'b'; c < 'z'; ++c) {
    const std::string before(1, static_cast<char>(c - 1));
    aliases += std::string(1, c) + ": &" + c + " [*" + before + ", *" + before + "]\n";
  }
  refuses(aliases, "needs a single value");
  EXPECT_EQ(server_.specs().size(), 0);
  // Help is given whatever the file holds.
  EXPECT_EQ(Run("a: [\n", {"ask", "--help"}).exit_code, 0);
}

TEST_F(UserConfigTest, WhatIsNoFileIsOneSentence) {
  EXPECT_EQ(RunAsIs({"models", "--server", server_.address()}).exit_code, 0);  // none
  std::filesystem::create_directory(Path());
  CliResult result = RunAsIs({"models", "--server", server_.address()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("is not a regular file"));
  std::filesystem::remove(Path());
  ASSERT_EQ(mkfifo(Path().c_str(), 0600), 0);
  result = RunAsIs({"models", "--server", server_.address()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("is not a regular file"));
  std::filesystem::remove(Path());
  result = RunAsIs({"models", "--server", server_.address(), "--profile", "x"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("has no profile x; it has none"));
}

}  // namespace
}  // namespace annulus::client
