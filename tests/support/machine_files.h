#ifndef ANNULUS_TESTS_SUPPORT_MACHINE_FILES_H_
#define ANNULUS_TESTS_SUPPORT_MACHINE_FILES_H_

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_directory.h"

namespace annulus::testing {

// A folder with the /proc and /sys files of an imagined machine, removed at the end.
class MachineFiles {
 public:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = std::filesystem::path(root()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root() const { return folder_.path().string(); }

 private:
  TempDirectory folder_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_MACHINE_FILES_H_
