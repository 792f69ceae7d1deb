#ifndef ANNULUS_CLIENT_READ_TEXT_BUILDER_H_
#define ANNULUS_CLIENT_READ_TEXT_BUILDER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace annulus::client {

// Lays out text like Markdown: an empty line between paragraphs, "# " before a heading, "- " before
// an item, table rows as "| a | b |". Drops blanks at the ends of lines.
class TextBuilder {
 public:
  // Adds text. Every run of white space becomes one blank; blanks at the beginning of a line are
  // dropped.
  void Flow(absl::string_view text);
  // Adds text unchanged, including newlines. Within a table row, works like Flow.
  void Verbatim(absl::string_view text);

  // Ends the line, if it has begun.
  void EndLine();
  // Ends the paragraph: an empty line will come before the next text.
  void EndParagraph();

  // Sets the text to put at the beginning of the next line. Replaces a prefix that is still
  // pending; an empty prefix cancels it.
  void Prefix(absl::string_view prefix) { prefix_ = std::string(prefix); }

  // Items are indented by two blanks for each enclosing list, up to 8 levels deep.
  void BeginList();
  void EndList();
  void BeginItem(absl::string_view mark);

  // Between BeginRow and EndRow, the ends of lines and paragraphs become blanks. The cells of a
  // nested row join the outer row.
  void BeginRow();
  void BeginCell();
  void EndRow();

  std::string Take();

 private:
  void Start();  // prepares to add text: writes the pending empty line, prefix or blank
  void TrimLine();

  std::string text_;
  std::string prefix_;
  int list_depth_ = 0;
  int row_depth_ = 0;
  bool first_item_ = false;     // the next item is the first of an outermost list
  bool line_open_ = false;      // the last line has text
  bool blank_pending_ = false;  // write a blank if more text follows on this line
  bool gap_pending_ = false;    // write an empty line before the next text
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_TEXT_BUILDER_H_
