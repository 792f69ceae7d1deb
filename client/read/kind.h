#ifndef ANNULUS_CLIENT_READ_KIND_H_
#define ANNULUS_CLIENT_READ_KIND_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace annulus {

enum class FileKind {
  kText,  // and all that nothing else is known of
  kHtml,
  kPdf,
  kZip,  // docx, odt and epub too
  kGzip,
  kOther,  // known, and not readable
};

struct Detected {
  FileKind kind = FileKind::kText;
  // Of kOther: what it is and what to do, behind the file's name: "is a PNG picture; ...".
  absl::string_view why{};
};

// Bytes that DetectKind looks at.
inline constexpr size_t kDetectBytes = 4096;

// Says what a file is by its first bytes; its name counts for nothing.
Detected DetectKind(absl::string_view head);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_KIND_H_
