#ifndef ANNULUS_TESTS_SUPPORT_TEST_DATA_H_
#define ANNULUS_TESTS_SUPPORT_TEST_DATA_H_

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace annulus::testing {

// The project's root: the variable ANNULUS_SOURCE_DIR, for tests that run elsewhere than they were
// built, else where they were built.
std::filesystem::path SourceFolder();

// The folder of the build, of this program: it holds annulusd and annulus.
std::filesystem::path BuildFolder();

// Path of `relative` inside the optional test data (a trained model, tokenizers, long texts), or
// nothing where the data is absent: the caller then skips with GTEST_SKIP. The folder is the
// variable ANNULUS_TEST_DATA, else `../shared/data` beside the project's root.
inline std::optional<std::filesystem::path> TestData(const std::string& relative) {
  const char* variable = std::getenv("ANNULUS_TEST_DATA");
  const std::filesystem::path root = variable != nullptr
                                         ? std::filesystem::path(variable)
                                         : SourceFolder() / ".." / "shared" / "data";
  std::error_code error;
  if (!std::filesystem::exists(root / relative, error)) return std::nullopt;
  return root / relative;
}

// A file committed under tests/, for example "golden/llama_tiny/config.json".
inline std::filesystem::path TestFile(const std::string& relative) {
  return SourceFolder() / "tests" / relative;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_TEST_DATA_H_
