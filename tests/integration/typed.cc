#include "tests/integration/typed.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/test_data.h"

namespace annulus::server {

using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<Daemon> TypedTest::daemon_;

void TypedTest::SetUpTestSuite() {
  daemon_ = std::make_unique<Daemon>(std::vector<std::string>{
      "--ranks", "2", "--kv-memory", "128MiB", "--max-context", absl::StrCat(kContext)});
  ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
}

void TypedTest::TearDownTestSuite() { daemon_.reset(); }

// The variables of tests are no settings of the programs.
constexpr char kForgetVariables[] =
    "unset ANNULUS_ $(env | sed -n 's/^\\(ANNULUS_[A-Z_]*\\)=.*/\\1/p'); ";

testing::TerminalProcess TypedTest::Start(const std::string& line) const {
  const std::string folder = folder_.path();
  return testing::TerminalProcess(
      {"/bin/sh", "-c",
       absl::StrCat(kForgetVariables, "cd '", folder, "'; export HOME='", folder, "' PATH='",
                    testing::BuildFolder().string(), "':$PATH ANNULUS_SERVER=", daemon_->address(),
                    "\n", line)});
}

std::string TypedTest::Shown(const std::string& line, int exit_code) const {
  testing::TerminalProcess shell = Start("stty columns 1000\n" + line);
  std::string shown;
  EXPECT_EQ(shell.Wait(&shown), exit_code) << line << "\n" << shown;
  return absl::StrReplaceAll(shown, {{"\r\n", "\n"}});
}

void TypedTest::Type(std::initializer_list<TypedLine> lines) const {
  for (const TypedLine& typed : lines) {
    SCOPED_TRACE(typed.line);
    const std::string shown = Shown(typed.line, typed.exit_code);
    for (const std::string& text : typed.shows) EXPECT_THAT(shown, HasSubstr(text));
    for (const std::string& text : typed.hides) EXPECT_THAT(shown, Not(HasSubstr(text)));
  }
}

std::string TypedTest::Read(const std::string& name) const {
  std::ifstream file(folder_.path() / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace annulus::server
