#ifndef ANNULUS_CLIENT_READ_ENCODING_H_
#define ANNULUS_CLIENT_READ_ENCODING_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

struct Utf8Text {
  std::string text;
  std::string converted_from;  // name of the encoding; empty: it was UTF-8
};

// Text of any encoding as UTF-8, without a byte order mark. What the text is in is told by its
// mark; without one it is UTF-8 if it can be, else `declared` (a name that iconv knows, or empty),
// else what uchardet takes it for. INVALID_ARGUMENT, with `what` for a name, if it is not text or
// its encoding is not known.
absl::StatusOr<Utf8Text> ToUtf8(absl::string_view what, std::string bytes,
                                const std::string& declared = "");

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_ENCODING_H_
