#ifndef ANNULUS_CLIENT_READ_WEB_EPUB_H_
#define ANNULUS_CLIENT_READ_WEB_EPUB_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/context.h"

namespace annulus::client {

// Whether the archive is an e-book: it says where its package lies.
bool IsEpub(const ZipArchive& archive);

// Returns the pages of an e-book in reading order, each as from ReadHtml; after them the pages
// beside the reading order that others cite, such as notes. Leaves out the table of contents. A
// page that cannot be read becomes a remark in its place. INVALID_ARGUMENT if the file is broken or
// protected against copying, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit. `what` names the
// file in messages.
absl::StatusOr<std::string> ReadEpub(absl::string_view what, const ZipArchive& archive,
                                     ReadContext& context);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_WEB_EPUB_H_
