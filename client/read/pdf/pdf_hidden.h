#ifndef ANNULUS_CLIENT_READ_PDF_PDF_HIDDEN_H_
#define ANNULUS_CLIENT_READ_PDF_PDF_HIDDEN_H_

#include <set>
#include <string>

namespace annulus::client {

// Empties the strings that a PDF shows in text rendering mode 3, which draws nothing (ISO 32000-1,
// 9.3.6), and returns how many passages those were. `qdf` is the file in qpdf's QDF form, whose
// contents are neither packed nor encrypted; its length does not change. Leaves `keep` alone: pages
// that are pictures, where such text is what a reader sees in the picture. Does not look into forms
// that pages share (XObjects).
int HideInvisiblePdfText(const std::set<int>& keep, std::string* qdf);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_PDF_PDF_HIDDEN_H_
