#ifndef ANNULUS_CLIENT_READ_PDF_QDF_H_
#define ANNULUS_CLIENT_READ_PDF_QDF_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::client {

// qpdf's QDF form of a PDF has each entry of a dictionary on a line of its own, and nothing packed
// or encrypted.

// A dictionary or an array that is an object of its own.
struct QdfObject {
  int number = 0;
  int page = 0;             // which page it is, from 1; 0: it is none
  absl::string_view lines;  // between its brackets
};

// An entry of a dictionary.
struct QdfEntry {
  absl::string_view name;   // "Subtype"
  absl::string_view value;  // "/Widget"; of one that goes on in further lines, its first line
  absl::string_view lines;  // all of it
};

// All such objects, in their order. They refer to `qdf`.
std::vector<QdfObject> FindQdfObjects(absl::string_view qdf);

// Takes the next entry of a dictionary from its lines; false if there is none.
bool TakeQdfEntry(absl::string_view* lines, QdfEntry* entry);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_PDF_QDF_H_
