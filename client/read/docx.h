#ifndef ANNULUS_CLIENT_READ_DOCX_H_
#define ANNULUS_CLIENT_READ_DOCX_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/limits.h"

namespace annulus {

// Whether the archive is a Word document (Office Open XML).
bool IsDocx(const ZipArchive& archive);

// Headings, paragraphs, lists and rows of tables in the order of the document; footnotes and
// endnotes as "[^1]" with their text at the end. What was deleted while changes were tracked is
// left out.
absl::StatusOr<std::string> ReadDocx(absl::string_view what, const ZipArchive& archive,
                                     ReadBudget& budget);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_DOCX_H_
