#ifndef ANNULUS_CLIENT_READ_PDF_PDF_BUTTONS_H_
#define ANNULUS_CLIENT_READ_PDF_PDF_BUTTONS_H_

#include <string>

namespace annulus::client {

// Makes check boxes and radio buttons of a PDF show the text "[x]" or "[ ]" where they stand. They
// draw lines or a symbol, most of them nothing while they are off, and pdftotext sees none of it
// (ISO 32000-1, 12.7.4.2). `qdf` is the file in qpdf's QDF form; afterwards fix-qdf must put its
// offsets in order. Returns how many there are; with 0 nothing was changed.
int DrawPdfButtons(std::string* qdf);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_PDF_PDF_BUTTONS_H_
