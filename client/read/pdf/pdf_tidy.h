#ifndef ANNULUS_CLIENT_READ_PDF_PDF_TIDY_H_
#define ANNULUS_CLIENT_READ_PDF_PDF_TIDY_H_

#include <string>
#include <vector>

namespace annulus::client {

// Makes the pages of a PDF shorter without a change of meaning:
//  - takes the margin off, and leaves two blanks of a run between words, and of a row of dots
//  three;
//    the blanks at the beginning of a line stay, up to 20;
//  - writes ligatures as letters;
//  - joins words that a line end parts: without the hyphen, unless the document has the word with
//  it;
//  - of lines that head or end pages again and again, leaves the first. Their numbers may count the
//    pages; a line with other numbers stays.
void TidyPdfPages(std::vector<std::string>* pages);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_PDF_PDF_TIDY_H_
