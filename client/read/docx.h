#ifndef ANNULUS_CLIENT_READ_DOCX_H_
#define ANNULUS_CLIENT_READ_DOCX_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/limits.h"

namespace annulus::client {

// Whether the archive is a Word document (Office Open XML).
bool IsDocx(const ZipArchive& archive);

// Returns the headings, paragraphs, lists and table rows in document order. Footnotes and endnotes
// become "[^1]", with their text at the end. Leaves out tracked deletions. INVALID_ARGUMENT if the
// file is broken or encrypted, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit. `what` names the
// file in messages.
absl::StatusOr<std::string> ReadDocx(absl::string_view what, const ZipArchive& archive,
                                     ReadBudget& budget);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_DOCX_H_
