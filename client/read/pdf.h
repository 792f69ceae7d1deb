#ifndef ANNULUS_CLIENT_READ_PDF_H_
#define ANNULUS_CLIENT_READ_PDF_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/limits.h"

namespace annulus {

// The text of a PDF as pdftotext lays it out, with "[page 7]" above each page. FAILED_PRECONDITION
// if pdftotext is absent, INVALID_ARGUMENT for a file that is encrypted, broken or without text.
absl::StatusOr<std::string> ReadPdf(absl::string_view what, absl::string_view bytes,
                                    ReadBudget& budget);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_PDF_H_
