#include "tests/support/small_model.h"

#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tests/support/test_data.h"

namespace annulus::testing {
namespace {

constexpr int kCannotBeHad = 3;  // the script's exit status

std::optional<std::filesystem::path> Fetch() {
  const std::string command =
      absl::StrCat("bash '", (SourceFolder() / "deploy" / "fetch_model.sh").string(), "' '",
                   (BuildFolder() / "models").string(), "'");
  FILE* const script = popen(command.c_str(), "r");
  if (script == nullptr) {
    ADD_FAILURE() << "cannot start " << command;
    return std::nullopt;
  }
  std::string path;
  char part[1024];
  while (fgets(part, sizeof(part), script) != nullptr) path += part;
  const int status = pclose(script);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotBeHad) return std::nullopt;
  EXPECT_EQ(status, 0) << command;
  if (status != 0) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(path));
}

}  // namespace

std::optional<std::filesystem::path> SmallModel() {
  static const std::optional<std::filesystem::path> model = Fetch();
  return model;
}

}  // namespace annulus::testing
