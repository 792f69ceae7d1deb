#ifndef ANNULUS_CLIENT_READ_PDF_PDF_SCRIPTS_H_
#define ANNULUS_CLIENT_READ_PDF_PDF_SCRIPTS_H_

#include <string>

#include "client/read/limits.h"
#include "client/read/pdf/pdf_boxes.h"

namespace annulus::client {

// Marks raised and lowered text on a page in its layout: "10^6" and "x_1", where pdftotext writes
// "106" and "x1". `boxes` describes the same page; a line that is not found in the layout, or for
// which no time is left, stays as it is.
void MarkPdfScripts(const PdfPage& boxes, const ReadBudget& budget, std::string* layout);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_PDF_PDF_SCRIPTS_H_
