#ifndef ANNULUS_CLIENT_READ_PDF_PDF_OCR_H_
#define ANNULUS_CLIENT_READ_PDF_PDF_OCR_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/context.h"

namespace annulus::client {

// The file with a layer of text on pages that show a picture alone, by ocrmypdf. The time that it
// takes, up to ReadLimits::ocr_time, does not count against the budget. FAILED_PRECONDITION if
// ocrmypdf is not installed, INVALID_ARGUMENT with its reason if it fails, DEADLINE_EXCEEDED if it
// takes longer.
absl::StatusOr<std::string> WithRecognizedText(absl::string_view what, absl::string_view bytes,
                                               ReadContext& context);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_PDF_PDF_OCR_H_
