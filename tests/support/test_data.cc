#include "tests/support/test_data.h"

namespace annulus::testing {

std::filesystem::path SourceFolder() {
  const char* variable = std::getenv("ANNULUS_SOURCE_DIR");
  return variable != nullptr ? variable : ANNULUS_SOURCE_DIR;
}

std::filesystem::path BuildFolder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
}

}  // namespace annulus::testing
