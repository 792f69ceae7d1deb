#include "engine/text/text_file.h"

#include <cstdint>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace annulus {

absl::StatusOr<std::string> ReadTextFile(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return absl::NotFoundError(absl::StrCat(path.string(), ": no such file"));
  }
  if (!std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a regular file"));
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kMaxTextFileBytes) {
    return absl::InvalidArgumentError(error ? absl::StrCat(path.string(), ": ", error.message())
                                            : absl::StrCat(path.string(), ": ", size,
                                                           " bytes; at most ", kMaxTextFileBytes,
                                                           " are allowed"));
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": cannot be read"));
  }
  return text;
}

}  // namespace annulus
