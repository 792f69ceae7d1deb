#ifndef ANNULUS_CLIENT_READ_PDF_PDF_NOTES_H_
#define ANNULUS_CLIENT_READ_PDF_PDF_NOTES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::client {

// What somebody has noted at a place of a page.
struct PdfNote {
  int page = 0;        // from 1
  std::string author;  // may be empty
  std::string text;
  bool hidden = false;  // by its flags: no reader sees it
};

// The notes on the pages of a PDF, in their order: the texts of annotations that mark a place or a
// passage (ISO 32000-1, 12.5.6). Not those of links and fields, which are no notes, nor of free
// text, which stands on the page itself and is read with it. `qdf` is the file in qpdf's QDF form.
std::vector<PdfNote> FindPdfNotes(absl::string_view qdf);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_PDF_PDF_NOTES_H_
