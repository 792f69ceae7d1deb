#ifndef ANNULUS_CLIENT_READ_KIND_H_
#define ANNULUS_CLIENT_READ_KIND_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace annulus::client {

enum class FileKind {
  kText,  // also everything without a known signature
  kHtml,
  kPdf,
  kMail,
  kMailbox,  // mails in the form of mbox
  kZip,      // also docx, pptx, xlsx, odt and epub
  kGzip,
  kOther,  // a known kind that cannot be read
};

struct Detected {
  FileKind kind = FileKind::kText;
  // For kOther: text to put after the file's name that says what it is and what to do, for example
  // "is a picture; convert it to text first ...".
  absl::string_view why{};
};

// The number of bytes that DetectKind examines.
inline constexpr size_t kDetectBytes = 4096;

// Detects what a file is from its first bytes alone, never from its name.
Detected DetectKind(absl::string_view head);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_KIND_H_
