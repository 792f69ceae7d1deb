#ifndef ANNULUS_CLIENT_READ_FILES_H_
#define ANNULUS_CLIENT_READ_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::client {

// Selects among the files of a folder or a pattern: those that match any `include` and no
// `exclude`. A pattern without "/" is matched against the file's name, any other against the file's
// path relative to the folder.
struct FileChoice {
  std::vector<std::string> include;  // empty: all
  std::vector<std::string> exclude;
};

// Whether `path` contains a wildcard: "*", "?" or "[".
bool IsPattern(absl::string_view path);

// Whether a path matches a pattern. Within one name, "*" matches any characters, "?" one character
// and "[a-z]" one of these letters; "**" matches any number of names, also none. No wildcard
// matches the dot at the beginning of a name.
bool MatchesPattern(absl::string_view pattern, absl::string_view path);

// The files that a folder or a pattern stands for.
struct FoundFiles {
  std::vector<std::string> files;  // sorted
  // One sentence about the files of a folder that are no documents; empty if there are none.
  std::string left_out;
};

// Finds the files in a folder and its subfolders, or those that match a pattern. Leaves out files
// and folders whose names begin with a dot, unless the pattern has such a name. Of a folder, unless
// choice.include says what to take, leaves out what saved pages bring along, by the names' endings:
// style sheets, scripts, pictures, fonts, sound and films. Does not follow links to folders.
// NOT_FOUND if there is no such file, RESOURCE_EXHAUSTED for more than
// 10,000 files or if the folder has more than 1,000,000 entries.
absl::StatusOr<FoundFiles> FindFiles(const std::string& folder_or_pattern,
                                     const FileChoice& choice);

// Reads a whole file. NOT_FOUND if it cannot be opened, RESOURCE_EXHAUSTED if it has more than
// `limit` bytes, DATA_LOSS if reading fails.
absl::StatusOr<std::string> LoadFile(const std::string& path, int64_t limit);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_FILES_H_
