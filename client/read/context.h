#ifndef ANNULUS_CLIENT_READ_CONTEXT_H_
#define ANNULUS_CLIENT_READ_CONTEXT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/read/limits.h"

namespace annulus::client {

enum class PdfOrder {
  kByPage,   // each page by its boxes: columns in reading order, tables as they stand
  kReading,  // all pages in reading order
  kLayout,   // all pages as they stand
};

// How the caller wants files to be read.
struct ReadOptions {
  bool headers = false;    // of pages of docx and odt
  bool comments = false;   // of docx, odt, xlsx, pptx and pdf
  bool alt = false;        // alternative text of pictures
  std::string encoding{};  // of texts and pages, a name for iconv; empty: as found out
  PdfOrder pdf = PdfOrder::kByPage;
  bool ocr = false;  // recognize the text of pages of a PDF that are pictures
  std::string
      ocr_languages{};  // in which they are, names of tesseract such as "deu+eng"; empty: eng
  // Called with a sentence before something that takes long; may be null.
  std::function<void(absl::string_view)> tell{};
};

// What a document has and its text lacks.
struct LeftOut {
  int hidden = 0;  // passages that a reader of the document does not see
  int headers = 0;
  int comments = 0;
  int alts = 0;
};

// One document while it is read: what the caller wants, what is left of the limits, and what to
// tell the user besides the text. Not thread-safe.
struct ReadContext {
  ReadBudget& budget;
  const ReadOptions& options;
  LeftOut left_out{};
  std::vector<std::string> remarks{};  // sentences, each begins with the file's name
  bool incomplete = false;             // part of the document could not be read
};

// Sentences on what was left out, and the flag that reads it.
std::vector<std::string> DescribeLeftOut(absl::string_view what, const LeftOut& left_out);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_CONTEXT_H_
