#ifndef ANNULUS_CLIENT_READ_EPUB_H_
#define ANNULUS_CLIENT_READ_EPUB_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/limits.h"

namespace annulus::client {

// Returns the pages of an e-book in reading order, each as from ReadHtml. Leaves out the table of
// contents and pages outside of the reading order. INVALID_ARGUMENT if the book is broken or
// protected (DRM), NOT_FOUND if it lacks a part, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a
// limit. `what` names the file in messages.
absl::StatusOr<std::string> ReadEpub(absl::string_view what, const ZipArchive& archive,
                                     ReadBudget& budget);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_EPUB_H_
