#ifndef ANNULUS_CLIENT_READ_PDF_PDF_H_
#define ANNULUS_CLIENT_READ_PDF_PDF_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/context.h"

namespace annulus::client {

// Returns the text of a PDF, with a line such as "[page 7]" above each page: pages with columns in
// reading order, the others as they stand, unless the options say otherwise; both tidied by
// TidyPdfPages. Names pages that show a picture and hold no text in a remark, and sets
// `incomplete`, unless the options have them read by WithRecognizedText. Text that the page does
// not show is left out and counted, unless the page is a picture; without qpdf, a remark says that
// it was not looked for. FAILED_PRECONDITION if pdftotext or pdfimages is not installed,
// INVALID_ARGUMENT if the file is encrypted, broken or has no text (which sets `incomplete` too),
// RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit.
absl::StatusOr<std::string> ReadPdf(absl::string_view what, absl::string_view bytes,
                                    ReadContext& context);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_PDF_PDF_H_
