#include "client/cli/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "annulus/v1/sampling.pb.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::client {
namespace {

using testing::CliResult;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::RunCliInProcess;
using ::testing::StartsWith;

TEST(Cli, EveryCommandHasHelpWithExamples) {
  const std::vector<std::vector<std::string>> commands = {{},
                                                          {"complete"},
                                                          {"ask"},
                                                          {"models"},
                                                          {"documents"},
                                                          {"documents", "put"},
                                                          {"status"},
                                                          {"documents", "list"},
                                                          {"documents", "show"},
                                                          {"tokenize"},
                                                          {"documents", "delete"},
                                                          {"attention"},
                                                          {"attention", "show"},
                                                          {"attention", "explain"}};
  for (std::vector<std::string> command : commands) {
    command.push_back("--help");
    const CliResult result = RunCliInProcess(command);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, StartsWith("Usage: annulus"));
    EXPECT_THAT(result.out, HasSubstr("Examples:\n  "));
    EXPECT_EQ(result.err, "");
  }
}

TEST(Cli, HelpNamesEverySamplingFieldAsAFlag) {
  const std::string help = RunCliInProcess({"complete", "--help"}).out;
  const auto& fields = *v1::SamplingParams::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    std::string flag = absl::StrCat("--", fields.field(i)->name());
    std::replace(flag.begin(), flag.end(), '_', '-');
    EXPECT_THAT(help, ::testing::AnyOf(HasSubstr(absl::StrCat("\n  ", flag)),
                                       ::testing::ContainsRegex("\n  -[a-z]," + flag)));
  }
}

TEST(Cli, PrintsItsVersion) {
  const CliResult result = RunCliInProcess({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("annulus 0."));
}

TEST(Cli, MisuseIsTwoAndSaysWhatIsWrong) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "a command is required: complete, ask, plan, chat, batch"},
      {{"fly"}, "unknown command: fly\nCommands: complete, ask, plan, chat, batch"},
      {{"asks"}, "unknown command: asks; did you mean ask?"},
      {{"documents"},
       "a command is required: put, list, show, get, unpin, delete\n'annulus documents --help'"},
      {{"documents", "fly"}, "unknown command: fly\nCommands: put, list"},
      {{"complete", "x", "--no-such-flag"},
       "unknown option: --no-such-flag\n'annulus complete --h"},
      {{"complete", "x", "--temperatur", "0"}, "--temperatur; did you mean --temperature?"},
      {{"ask", "x", "--modle", "m"}, "--modle; did you mean --model?"},
      {{"complete", "x", "--max-tokens", "many"}, "--max-tokens = many is not a valid number"},
      {{"complete", "x", "--max-tokens", "99999999999"}, "--max-tokens"},
      {{"complete", "x", "-t", "3"}, "--temperature: 3 is not allowed: 0 to 2"},
      {{"complete", "x", "--top-p", "0"}, "--top-p: 0 is not allowed: above 0, up to 1"},
      {{"complete", "x", "-n", "0"}, "--max-tokens: 0 is not allowed: 1 or more"},
      {{"complete", "x", "--logprobs", "21"}, "--logprobs: 21 is not allowed: 0 to 20"},
      {{"ask", "x", "y", "--priority", "nan"}, "--priority: nan is not allowed: -2 to 2"},
      {{"ask", "x", "y", "--coverage", "1.5"}, "--coverage: 1.5 is not allowed: above 0, up to 1"},
      {{"attention", "show", "--seq", "0"}, "--seq: 0 is not allowed: 1 or more"},
      {{"complete", "x", "--stop", "\\q"}, "allowed are \\n"},
      {{"complete", "x", "--logit-bias", "5"}, "ID:BIAS"},
      {{"complete", "x", "--document", "a.txt", "b.txt"},
       "unexpected argument: b.txt; --document takes one document: repeat it for each"},
      {{"ask", "x", "y", "--ocr-languages", "-rf"}, "-rf is not a list of languages"},
      {{"complete", "x", "y"}, "unexpected argument: y; put quotes around a text with spaces"},
      {{"ask", "only-one"}, "a document and a QUESTION are required"},
      {{"ask"}, "DOC... is required"},
      {{"models", "--timeout", "0"}, "--timeout"},
      {{"models", "--timeout", "nan"}, "--timeout"},
      {{"models", "--progress", "sometimes"}, "--progress"},
      {{"models", "--token-file", "/nonexistent"}, "--token-file"},
      {{"models", "--tls-ca", "/nonexistent"}, "--tls-ca"},
      {{"models", "--tls-cert", "/nonexistent"}, "--tls-key"},
      {{"models", "--server", ""}, "--server"},
      {{"models", "--server", "host:abc"}, "is not HOST:PORT"}};
  for (const auto& [arguments, message] : cases) {
    const CliResult result = RunCliInProcess(arguments, {.in_is_terminal = true});
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_THAT(result.err, StartsWith("annulus: "));
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(result.out, "");
  }
}

TEST(Cli, TakesServerAndTokenFromFlagsBeforeTheEnvironment) {
  FakeServer server;
  const testing::CliInput environment{
      .environment = {{"ANNULUS_SERVER", server.address()}, {"ANNULUS_TOKEN", "from-variable"}}};
  EXPECT_EQ(RunCliInProcess({"models"}, environment).exit_code, 0);
  EXPECT_EQ(server.authorization(), "Bearer from-variable");
  EXPECT_EQ(RunCliInProcess({"models", "--token", "from-flag"}, environment).exit_code, 0);
  EXPECT_EQ(server.authorization(), "Bearer from-flag");

  const testing::CliInput elsewhere{.environment = {{"ANNULUS_SERVER", "127.0.0.1:1"}}};
  EXPECT_EQ(RunCliInProcess({"models", "--server", server.address()}, elsewhere).exit_code, 0);
  EXPECT_EQ(RunCliInProcess({"--server", server.address(), "models"}, elsewhere).exit_code, 0);
}

TEST(Cli, ReadsATokenFile) {
  FakeServer server;
  const testing::TempDirectory folder;
  folder.Write("token", "  in-file \nsecond line\n");
  const std::string path = folder.path() / "token";
  EXPECT_EQ(
      RunCliInProcess({"models", "--server", server.address(), "--token-file", path}).exit_code, 0);
  EXPECT_EQ(server.authorization(), "Bearer in-file");
}

TEST(Cli, WarnsOfATokenInTheClear) {
  const CliResult result =
      RunCliInProcess({"models", "--server", "host.invalid:1", "--token", "t", "--timeout", "1"});
  EXPECT_THAT(result.err, HasSubstr("without encryption"));
  EXPECT_GE(result.exit_code, 64);
}

// A port that takes connections and never says a word.
class SilentPort {
 public:
  SilentPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, generic, size), 0);
    EXPECT_EQ(listen(fd_, 4), 0);
    EXPECT_EQ(getsockname(fd_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentPort() { close(fd_); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int fd_;
  int port_ = 0;
};

TEST(Cli, GivesUpAtTheDeadline) {
  const SilentPort port;
  const auto start = std::chrono::steady_clock::now();
  const CliResult result =
      RunCliInProcess({"models", "--server", port.address(), "--timeout", "0.5"});
  EXPECT_EQ(result.exit_code, 64 + grpc::StatusCode::DEADLINE_EXCEEDED) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--timeout 0.5 seconds"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Cli, TokenizesStandardInputByteForByte) {
  FakeServer server;
  CliResult result = RunCliInProcess({"tokenize", "--server", server.address()}, {.in = "ab\n"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "1 97 98 10\n");
  result = RunCliInProcess({"tokenize", "--no-special", "--json", "--server", server.address()},
                           {.in = "ab"});
  EXPECT_EQ(result.out, "{\"token_ids\":[97,98]}\n");
  result = RunCliInProcess({"tokenize", "--server", server.address()}, {.in = "a\xFF"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("not UTF-8 (byte 1)"));
}

}  // namespace
}  // namespace annulus::client
