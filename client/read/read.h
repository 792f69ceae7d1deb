#ifndef ANNULUS_CLIENT_READ_READ_H_
#define ANNULUS_CLIENT_READ_READ_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/limits.h"

namespace annulus {

// One text that was found in a file, or why there is none.
struct FileText {
  std::string title;  // the file's name; of a file in an archive "archive.zip/name"
  absl::StatusOr<std::string> text;
  std::string remark{};  // what a person should know: "latin.txt was converted from ...", or empty
};

// Reads a file of any kind that DetectKind knows: one text, or one for each file of an archive.
// Text that is UTF-8 comes back as it is. Never throws, and ends at the limits whatever the bytes
// are.
std::vector<FileText> ReadBytes(const std::string& title, std::string bytes,
                                const ReadLimits& limits = {});

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_READ_H_
