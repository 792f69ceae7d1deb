#ifndef ANNULUS_CLIENT_READ_TEXT_BUILDER_H_
#define ANNULUS_CLIENT_READ_TEXT_BUILDER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// Lays out text in the way of Markdown: paragraphs with an empty line between, "# " before a
// heading,
// "- " before an item, rows of tables as "| a | b |". Blanks at the ends of lines are dropped.
class TextBuilder {
 public:
  // Adds text; any run of white space becomes one blank, and none begins a line.
  void Flow(absl::string_view text);
  // Adds text as it is, newlines included; in a cell of a table they become blanks.
  void Verbatim(absl::string_view text);

  // Ends the line, if it has begun.
  void EndLine();
  // Ends the paragraph: an empty line comes before the next text.
  void EndParagraph();

  // Put before the next text, at the beginning of its line. The latest one counts; an empty one
  // takes back what no text has followed.
  void Prefix(absl::string_view prefix) { prefix_ = std::string(prefix); }

  // A list indents the prefixes of its items, up to 8 deep.
  void BeginList();
  void EndList();
  void BeginItem(absl::string_view mark);

  // Ends of lines and paragraphs become blanks between the begin and the end of a row. A row within
  // a row has its cells in the outer one.
  void BeginRow();
  void BeginCell();
  void EndRow();

  std::string Take();

 private:
  void Start();  // of text: places the empty line and the prefix
  void TrimLine();

  std::string text_;
  std::string prefix_;
  int list_depth_ = 0;
  int row_depth_ = 0;
  bool first_item_ = false;     // of the outermost list, comes next
  bool line_open_ = false;      // the last line has text
  bool blank_pending_ = false;  // white space was seen that only counts before more text
  bool gap_pending_ = false;    // an empty line comes before the next text
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_TEXT_BUILDER_H_
