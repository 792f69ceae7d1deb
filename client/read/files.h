#ifndef ANNULUS_CLIENT_READ_FILES_H_
#define ANNULUS_CLIENT_READ_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Which files of a folder or a pattern are meant. A pattern without "/" is held against the file's
// own name, any other one against its path below the folder.
struct FileChoice {
  std::vector<std::string> include;  // empty: all
  std::vector<std::string> exclude;
};

// Whether it has one of the signs of a pattern: "*", "?", "[".
bool IsPattern(absl::string_view path);

// Whether a path matches a pattern: "*" and "?" stand for anything but "/", "**" for any number of
// folders, "[a-z]" for one of these letters. Names that begin with a dot must be named so.
bool MatchesPattern(absl::string_view pattern, absl::string_view path);

// The files of a folder and those below it, or those that match a pattern, sorted. Files and
// folders whose names begin with a dot are left out unless a pattern names them; links to folders
// are not followed. NOT_FOUND if there is no such file, RESOURCE_EXHAUSTED for more than 10,000.
absl::StatusOr<std::vector<std::string>> FindFiles(const std::string& folder_or_pattern,
                                                   const FileChoice& choice);

// All bytes of a file. NOT_FOUND if it cannot be opened, RESOURCE_EXHAUSTED if it has more than
// `limit`, DATA_LOSS if reading fails.
absl::StatusOr<std::string> LoadFile(const std::string& path, int64_t limit);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_FILES_H_
