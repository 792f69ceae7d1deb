#ifndef ANNULUS_CLIENT_READ_READ_H_
#define ANNULUS_CLIENT_READ_READ_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/context.h"
#include "client/read/limits.h"

namespace annulus::client {

// One text found in a file, or the reason why it could not be read.
struct FileText {
  std::string title;  // the file's name; "archive.zip/name" for a file in an archive
  absl::StatusOr<std::string> text;
  std::vector<std::string> remarks{};  // for the user: "latin.txt was converted from ..."
  bool incomplete = false;             // part of it could not be read, as a remark says
};

// Reads a file of any kind that DetectKind knows. Returns one text, or one for each file of an
// archive, or of a mail and its attachments. UTF-8 text is returned unchanged, except for its byte
// order mark. Safe for untrusted bytes: never throws, and stops at the limits.
std::vector<FileText> ReadBytes(const std::string& title, std::string bytes,
                                const ReadOptions& options = {}, const ReadLimits& limits = {});

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_READ_H_
