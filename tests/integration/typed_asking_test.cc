// Questions, plans and the habits of a command line, typed and answered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/integration/typed.h"

namespace annulus::server {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class TypedAskingTest : public TypedTest {
 protected:
  TypedAskingTest() {
    Write("notes.txt", "The pilot at BRAE is called 2290-KNOT.\nNothing else.\n");
  }

  // A question with one right answer, and what may follow it.
  static std::string Ask(const std::string& more) {
    return absl::StrCat("annulus ask notes.txt 'The pilot at BRAE is called ' --stop '\\n' ", more);
  }
};

constexpr char kDemonstration[] = "recall is a demonstration model";

TEST_F(TypedAskingTest, AnswersGoToTheTerminalAndToFiles) {
  Type({
      {Ask(""), 0, {"2290-KNOT.\n", kDemonstration}},
      {Ask("2>/dev/null"), 0, {"2290-KNOT.\n"}, {kDemonstration}},
      {Ask("-n 4 --quiet"), 0, {"2290\n"}, {"KNOT"}},
      {Ask("-o answer.txt") + "; echo then; cat answer.txt", 0, {"then\n2290-KNOT.\n"}},
      {Ask("-m recall -t 0 -n 9 --quiet"), 0, {"2290-KNOT\n"}},
      {Ask("-m other"), 64 + 5, {"there is no model \"other\"; this server has \"recall\""}},
      {"annulus ask notes.txt Who? -s 'Be brief.' --show-prompt", 0, {"Be brief.", "Who?"}},
      {Ask("--timings"), 0, {"tokens     prompt ", "first token "}},
      {"printf 'The pilot at BRAE is called \\nNothing \\n' >q; annulus ask notes.txt --questions "
       "q "
       "--stop '\\n'",
       0,
       {"# The pilot at BRAE is called", "2290-KNOT.", "# Nothing", "else."}},
      {"annulus complete 'abc abc ab' -n 1", 0, {"c\n", kDemonstration}},
  });
}

TEST_F(TypedAskingTest, ProgramsGetObjects) {
  Type({
      {Ask("--json --quiet"), 0, {"{\"text\":\"2290-KNOT.\",\"token_ids\":[50,", "\"usage\":"}},
      {Ask("--json-lines --quiet"),
       0,
       {"{\"event\":\"delta\",\"text\":\"2", "{\"event\":\"end\",\"text\":\"2290-KNOT.\""}},
      {Ask("--logprobs 1 -n 2 --quiet"), 0, {"TOKEN  TEXT", "\"2\""}},
      {Ask("--logprobs 1 -n 1 --json --quiet"),
       0,
       {"\"logprobs\":[{\"token_id\":50,\"text\":\"2\""}},
      {Ask("-n 100000 --json --quiet"), 2, {"lower --max-tokens or shorten the question"}},
      {"annulus complete Who? -n 100000 --json --quiet",
       64 + 11,
       {"{\"error\":{\"code\":\"OUT_OF_RANGE\",\"message\":\"spec.sampling.max_tokens: ",
        "\"reason\":\"CONTEXT_TOO_LONG\"}}\n", "field: --max-tokens"}},
      {"annulus ask nowhere Who? --json",
       64 + 5,
       {"{\"error\":{\"code\":\"NOT_FOUND\",", "\"reason\":\"DOCUMENT_NOT_FOUND\"}}\n",
        "annulus: nowhere is neither a local file"}},
      {"annulus documents show nowhere --json", 64 + 5, {"{\"error\":{\"code\":\"NOT_FOUND\","}},
      {"annulus models --json", 0, {"{\"models\":[{\"name\":\"recall\""}},
      {"annulus status --json", 0, {"{\"server\":{\"version\":"}},
  });
}

TEST_F(TypedAskingTest, FlagsEndWherePeopleSayTheyDo) {
  Write("--odd.txt", "The odd one is called 17.\n");
  Type({
      {"annulus ask --quiet -n 3 -- --odd.txt 'The odd one is called '", 0, {"17.\n"}},
      {"annulus ask -- --odd.txt '--why' --show-prompt",
       2,
       {"there is no file --why, and a document on the server cannot have that name"}},
      {"annulus --quiet -- complete -n", 0},
      {"annulus complete -- 'abc abc ab' -n", 2, {"unexpected argument: -n"}},
      {"annulus ask notes.txt Who? --tempratur 1", 2, {"--temperature"}},
      {"annulus aks notes.txt Who?", 2, {"did you mean ask?"}},
      {"annulus ask --help", 0, {"Examples:", "-n,--max-tokens"}},
      {"annulus --version", 0, {"annulus 0."}},
  });
}

TEST_F(TypedAskingTest, TheUsersFileSaysWhatNobodyElseDoes) {
  fs::create_directories(Path("config/annulus"));
  Write("config/annulus/config.yaml",
        "quiet: true\nmax_tokens: 4\nprofiles:\n  long: {max_tokens: 9}\n  away: {server: "
        "\"127.0.0.1:1\"}\n");
  const std::string here = "export XDG_CONFIG_HOME=config; ";
  Type({
      {here + Ask(""), 0, {"2290\n"}, {"KNOT", kDemonstration}},
      {here + Ask("-n 6"), 0, {"2290-K\n"}},
      {here + Ask("--profile long"), 0, {"2290-KNOT\n"}},
      {here + "ANNULUS_PROFILE=long " + Ask(""), 0, {"2290-KNOT\n"}},
      // A variable is nearer than the file.
      {here + Ask("--profile away"), 0, {"2290\n"}},
      {here + "unset ANNULUS_SERVER; " + Ask("--profile away"),
       64 + 14,
       {"Is annulusd running at 127.0.0.1:1?"}},
      {here + Ask("--profile lung"), 2, {"long"}},
  });
}

// Takes connections and never says a word.
class SilentListener {
 public:
  SilentListener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~SilentListener() { close(socket_); }
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;

  const std::string& address() const { return address_; }

 private:
  const int socket_;
  std::string address_;
};

TEST_F(TypedAskingTest, AServerThatDoesNotAnswerIsNotAwaitedForLong) {
  const SilentListener silent;
  Type({
      {"annulus models --connect-timeout 0.3 --server " + silent.address(),
       64 + 14,
       {silent.address() + " accepts connections but does not answer"}},
      {"annulus models --server 127.0.0.1:1", 64 + 14, {"Is annulusd running at 127.0.0.1:1?"}},
      {"annulus models --server " + daemon_->metrics_address(),
       64 + 14,
       {"is not the gRPC API of annulusd"}},
  });
}

TEST_F(TypedAskingTest, NothingIsColoured) {
  for (const char* const setting : {"", "NO_COLOR=1 "}) {
    for (const std::string& line :
         {Ask("--timings"), std::string("annulus status"), std::string("annulus ask --help"),
          std::string("annulus attention show --policy strided --seq 2048")}) {
      EXPECT_THAT(Shown(setting + line), Not(ContainsRegex("\x1b\\[[0-9;]*m"))) << line;
    }
  }
}

TEST_F(TypedAskingTest, WordsAndTablesFitEightyColumns) {
  for (const std::string& line : {Ask("--timings"), std::string("annulus status")}) {
    std::string shown;
    EXPECT_EQ(Start(line).Wait(&shown), 0) << shown;
    for (const absl::string_view row : absl::StrSplit(shown, "\r\n")) {
      // A bar is drawn over itself.
      EXPECT_LE(row.substr(row.rfind('\r') + 1).size(), 80) << row;
    }
    EXPECT_THAT(shown, ContainsRegex("same\r\n  words in the text|RANK  STATE .* ALL MEMORY"));
  }
}

TEST_F(TypedAskingTest, APlanIsSeenBeforeTheQuestion) {
  Type({
      {"annulus plan notes.txt 'The pilot at BRAE is called '",
       0,
       {"prompt       81 tokens: ", " in memory", "fits now, on 1 rank", "dense, density 1",
        "first token  ", "RANK  KEYS AND VALUES"},
       {"KNOT"}},
      {Ask("--quiet"), 0, {"2290-KNOT."}},
      {"annulus plan notes.txt 'Who?' --attention window:window=64,sinks=0 --json",
       0,
       {"\"fit\":\"now\"", "\"policy\":\"window:", "\"time_to_first_token\":0."}},
      {"annulus plan notes.txt 'Who?' -n 40000", 64 + 11, {"lower max_tokens to at most"}},
      {"annulus plan notes.txt", 2, {"a QUESTION is required after the documents"}},
      {"annulusd --plan --memory 1GiB", 0, {"longest context", "int8      bf16  1"}},
      {"annulusd --plan --device abacus", 2, {"h100-80gb"}},
  });
}

TEST_F(TypedAskingTest, CompletionsAndManualsComeFromTheSameTables) {
  Type({
      {"bash -c 'source <(annulus completion bash) && complete -p annulus'", 0, {"annulus"}},
      {"annulus completion zsh", 0, {"#compdef annulus"}},
      {"annulus completion fish", 0, {"complete -c annulus"}},
      {"annulus completion tcsh", 2, {"bash"}},
      {"annulus help --man", 0, {".TH ANNULUS 1", "\\-\\-max\\-tokens"}},
      {"annulusd --help", 0, {"--kv-memory SIZE"}},
  });
}

TEST_F(TypedAskingTest, PicturesAreWrittenByTheirNames) {
  Write("long.txt", std::string(8000, 'x') + "\n");
  const std::string explain = "annulus attention explain --document long.txt --prompt Why? -n 4 ";
  Type({
      {explain + "-o page.html", 0, {"(0 reused; 8,0"}},
      // Past the cache, which has it now.
      {explain + "-o page.html", 0, {"(0 reused; 8,0"}},
      {explain + "-o page.pdf",
       2,
       {".pdf is not allowed here; the name must end in .html or .htm"}},
      {"annulus attention show --policy random --seq 16384 --heads 4 -o map.svg", 0},
      {"annulus attention show --policy random --seq 16384 -o map.jpg", 2, {".jpg is not allowed"}},
      {"annulus attention show --policy strided --seq 2048", 0, {"tokens"}},
  });
  EXPECT_THAT(Read("page.html"), AllOf(HasSubstr("recall"), HasSubstr("long.txt")));
  EXPECT_LT(Read("map.svg").size(), 200'000);
  EXPECT_THAT(Read("map.svg"), HasSubstr("<svg"));
}

}  // namespace
}  // namespace annulus::server
