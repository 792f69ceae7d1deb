#ifndef ANNULUS_TESTS_SUPPORT_TEMP_DIRECTORY_H_
#define ANNULUS_TESTS_SUPPORT_TEMP_DIRECTORY_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus::testing {

// An empty directory that is removed with all it holds.
class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "annulus-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
    path_ = pattern;
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  const std::filesystem::path& path() const { return path_; }

  // Writes (or overwrites) a file in it.
  void Write(const std::string& name, absl::string_view content) const {
    std::ofstream file(path_ / name, std::ios::binary | std::ios::trunc);
    file.exceptions(std::ios::failbit | std::ios::badbit);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_TEMP_DIRECTORY_H_
