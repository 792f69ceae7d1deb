#ifndef ANNULUS_CLIENT_READ_PDF_PDF_BOXES_H_
#define ANNULUS_CLIENT_READ_PDF_PDF_BOXES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/limits.h"

namespace annulus::client {

// One line of text on a page of a PDF, with its place in points from the upper left corner.
struct PdfLine {
  double left = 0, top = 0, right = 0, bottom = 0;
  std::string text;         // with raised and lowered parts as TextBuilder writes them
  bool ends_block = false;  // a paragraph or the like ends with it
  std::string plain{};      // the words as they are
  bool has_scripts = false;
};

// A page as `pdftotext -bbox-layout` describes it: its lines in reading order.
using PdfPage = std::vector<PdfLine>;

// Splits the output of `pdftotext -bbox-layout` into pages. INVALID_ARGUMENT if it is none,
// DEADLINE_EXCEEDED if the time is up. `what` names the file in messages.
absl::StatusOr<std::vector<PdfPage>> ParsePdfBoxes(absl::string_view what, absl::string_view xml,
                                                   const ReadBudget& budget);

// Whether a page has columns of prose side by side, so that it must be read in reading order. The
// cells of tables are shorter than their columns are wide; they keep their layout.
bool HasColumns(const PdfPage& page);

// The page's text in reading order, with an empty line between blocks. What stands side by side in
// that order, such as the cells of a table's row, is one line.
std::string ReadingText(const PdfPage& page);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_PDF_PDF_BOXES_H_
