#ifndef ANNULUS_CLIENT_READ_EPUB_H_
#define ANNULUS_CLIENT_READ_EPUB_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/limits.h"

namespace annulus {

// The pages of an e-book in its reading order, as ReadHtml gives them. Pages that stand outside of
// the order, and its table of contents, are left out.
absl::StatusOr<std::string> ReadEpub(absl::string_view what, const ZipArchive& archive,
                                     ReadBudget& budget);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_EPUB_H_
