#ifndef ANNULUS_CLIENT_READ_PDF_H_
#define ANNULUS_CLIENT_READ_PDF_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/limits.h"

namespace annulus::client {

// Returns the text of a PDF as pdftotext lays it out, with a line such as "[page 7]" above each
// page. FAILED_PRECONDITION if pdftotext is not installed, INVALID_ARGUMENT if the file is
// encrypted, broken or has no text, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit.
absl::StatusOr<std::string> ReadPdf(absl::string_view what, absl::string_view bytes,
                                    ReadBudget& budget);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_PDF_H_
