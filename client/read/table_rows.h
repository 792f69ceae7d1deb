#ifndef ANNULUS_CLIENT_READ_TABLE_ROWS_H_
#define ANNULUS_CLIENT_READ_TABLE_ROWS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::client {

struct TableCell {
  int columns = 1;         // that it spans
  int rows = 1;            // that it spans; 0: to the end of the group of rows
  int copies = 1;          // cells of the same text side by side
  bool header = false;     // its lines join, and its text stands above all columns that it spans
  bool continues = false;  // if empty, has the text of the cell above
};

// Writes the rows of a table as "| a | b |", so that each text stands in its column. A short cell
// that spans rows is repeated in each of them; one that spans columns is followed by empty cells.
class TableRows {
 public:
  void BeginRow();
  // Leaves empty columns.
  void Skip(int columns);
  void Add(const TableCell& cell, std::string text);
  // Ends the row and returns it, without a newline; empty if no cell of the row has text.
  std::string EndRow();
  // No cell above spans the rows below.
  void EndGroup() { spans_.clear(); }

 private:
  struct Span {
    int rows = 0;  // still to come
    std::string text;
  };

  void PassSpans();
  void Put(absl::string_view text);
  void Place(absl::string_view text);

  std::vector<std::string> row_;
  std::vector<std::string> above_;  // texts of the row before
  std::vector<Span> spans_;         // by column
  size_t placed_ = 0;               // cells that stand only for a span, of the whole table
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_TABLE_ROWS_H_
