// A document is put and read ahead by the real program; questions then read their own words only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/demo/document.h"
#include "tests/integration/daemon.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using Json = nlohmann::ordered_json;

class PrefilledDocumentTest : public ::testing::Test {
 protected:
  PrefilledDocumentTest() : daemon_({"--ranks", "2", "--kv-memory", "64MiB"}) {
    document_ = MakeDemoDocument({.bytes = 20'000}).value();
    directory_.Write("records.txt", document_.text);
  }

  // Runs the client; its last line on both streams is JSON.
  Json Annulus(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), testing::BuildFolder() / "annulus");
    for (const char* more : {"--json", "--quiet", "--server"}) arguments.emplace_back(more);
    arguments.push_back(daemon_.address());
    Program program(arguments, {"HOME=/nonexistent"});
    EXPECT_EQ(program.WaitForExit(std::chrono::seconds(60)), 0) << program.output();
    program.WaitForOutput("\n", std::chrono::seconds(10));
    return Json::parse(program.output(), nullptr, /*allow_exceptions=*/false);
  }

  const testing::TempDirectory directory_;
  DemoDocument document_;
  Daemon daemon_;
};

TEST_F(PrefilledDocumentTest, AskFindsWhatPutHasRead) {
  ASSERT_TRUE(daemon_.WaitUntilReady()) << daemon_.output();
  const std::string file = directory_.path() / "records.txt";
  const int64_t pages = std::ssize(document_.text) / 64 * 64;
  const Json put = Annulus({"documents", "put", "--prefill", file});
  EXPECT_EQ(put["prefilled"]["tokens"], pages) << put;
  EXPECT_EQ(put["prefilled"]["cached_tokens"], 0);
  for (const DemoFact& fact : document_.facts) {
    const Json answer = Annulus({"ask", file, fact.cue, "--stop", "\\n"});
    EXPECT_EQ(answer["usage"]["cached_tokens"], pages) << answer;
    EXPECT_EQ(answer["text"], fact.answer);
  }
  // By its name, too; and once more is not read again.
  EXPECT_EQ(Annulus({"ask", "records.txt", "?", "-n", "1"})["usage"]["cached_tokens"], pages);
  EXPECT_EQ(Annulus({"documents", "put", "--prefill", file})["prefilled"]["cached_tokens"], pages);
}

}  // namespace
}  // namespace annulus
