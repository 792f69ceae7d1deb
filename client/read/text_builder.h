#ifndef ANNULUS_CLIENT_READ_TEXT_BUILDER_H_
#define ANNULUS_CLIENT_READ_TEXT_BUILDER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/read/table_rows.h"

namespace annulus::client {

enum class Script { kNone, kSuper, kSub };

// Lays out text like Markdown: an empty line between paragraphs, "# " before a heading, "- " before
// an item, table rows as "| a | b |", raised and lowered text as "10^6" and "x_1". Drops blanks at
// the ends of lines.
class TextBuilder {
 public:
  TextBuilder() : frames_(1) {}

  // Adds text. Every run of white space becomes one blank; blanks at the beginning of a line are
  // dropped.
  void Flow(absl::string_view text);
  // Adds text unchanged, including newlines.
  void Verbatim(absl::string_view text);
  // Adds a formula, fraction or form value that must not join a word beside it: "5 1/2", not
  // "51/2".
  void Apart(absl::string_view text);

  // Text between BeginScript and EndScript is raised or lowered. Neighbours of the same kind join.
  // Signs that are raised only for looks ("(R)", "1st") and notes ("[1]") get no mark.
  void BeginScript(Script kind);
  void EndScript();

  // Text between BeginStruck and EndStruck is struck out: "~~100~~". Neighbours join.
  void BeginStruck();
  void EndStruck();

  // Whether the last line has text.
  bool line_open() const { return frames_.back().line_open; }

  // Ends the line, if it has begun.
  void EndLine();
  // Ends the paragraph: an empty line will come before the next text.
  void EndParagraph();

  // Sets the text to put at the beginning of the next line. Replaces a prefix that is still
  // pending; an empty prefix cancels it.
  void Prefix(absl::string_view prefix) { top().prefix = std::string(prefix); }

  // Items are indented by two blanks for each enclosing list, up to 8 levels deep.
  void BeginList();
  void EndList();
  void BeginItem(absl::string_view mark);

  // Tables, rows and cells lie inside each other; a row outside a table and a cell outside a row
  // are no-ops. A cell may hold several lines, and another table, up to 8 deep.
  void BeginTable();
  void BeginRow();
  void BeginCell(const TableCell& cell = {});
  void EndCell();
  void EndRow();
  // No cell above spans the rows below.
  void EndRowGroup();
  void EndTable();

  // Leaves empty columns in the open row.
  void SkipColumns(int columns);

  std::string Take();

 private:
  // The text of the document, or of one open cell.
  struct Frame {
    std::string text;
    std::string prefix;
    int list_depth = 0;
    bool first_item = false;     // the next item is the first of an outermost list
    bool line_open = false;      // the last line has text
    bool blank_pending = false;  // write a blank if more text follows on this line
    bool gap_pending = false;    // write an empty line before the next text
    bool after_formula = false;  // the text ends with one that Apart added
    Script script = Script::kNone;
    int script_depth = 0;  // open scripts inside each other
    bool script_begun = false;
    size_t script_begin = 0;  // offset in `text`, once the script has begun
    int struck_depth = 0;     // open struck parts inside each other
    bool struck_begun = false;
    size_t struck_end = 0;  // where the last struck part ended
  };
  struct Row {
    bool counts = false;  // false: a row outside a table
    int cells = 0;        // open
  };

  Frame& top() { return frames_.back(); }
  void Start(char first);  // before text is added that begins with `first`
  void SettleScript(char next);
  void CloseStruck();
  void TrimLine();

  std::vector<Frame> frames_;
  std::vector<TableRows> tables_;
  std::vector<Row> rows_;
  std::vector<bool> cells_;           // of each open cell: whether it has a frame
  std::vector<TableCell> open_cell_;  // of each open cell that has one
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_TEXT_BUILDER_H_
