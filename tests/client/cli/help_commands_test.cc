#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/client/cli/run_cli.h"

namespace annulus::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunCliInProcess;

TEST(Help, PrintsTheHelpOfACommand) {
  EXPECT_EQ(RunCliInProcess({"help", "documents", "rm"}).out,
            RunCliInProcess({"documents", "delete", "--help"}).out);
  EXPECT_EQ(RunCliInProcess({"help"}).out, RunCliInProcess({"--help"}).out);
  EXPECT_EQ(RunCliInProcess({"help", "nothing"}).exit_code, 2);
}

TEST(Help, TheManualHasEveryCommandAndOptionOnce) {
  const std::string page = RunCliInProcess({"help", "--man"}).out;
  EXPECT_THAT(page, HasSubstr(".TH ANNULUS 1"));
  for (const char* command : {"ask", "chat", "batch", "summarize", "documents put", "status"}) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat(".SS annulus ", command)));
  }
  const size_t first = page.find("\\-\\-top\\-k N");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(page.find("\\-\\-top\\-k N", first + 1), std::string::npos);
  EXPECT_THAT(page, Not(HasSubstr("\n'")));
}

}  // namespace
}  // namespace annulus::client
