#ifndef ANNULUS_ENGINE_TEXT_TEXT_FILE_H_
#define ANNULUS_ENGINE_TEXT_TEXT_FILE_H_

#include <cstddef>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace annulus {

inline constexpr size_t kMaxTextFileBytes = size_t{256} << 20;

// Reads a regular file of at most kMaxTextFileBytes. NOT_FOUND if it does not exist,
// INVALID_ARGUMENT if it is not a regular file or is too large.
absl::StatusOr<std::string> ReadTextFile(const std::filesystem::path& path);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_TEXT_FILE_H_
