#ifndef ANNULUS_CLIENT_FORMAT_TABLE_H_
#define ANNULUS_CLIENT_FORMAT_TABLE_H_

#include <string>
#include <vector>

namespace annulus {

// A plain table: a header row, then rows, columns two blanks apart, no blanks at line ends.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string header;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // `cells` has one entry for each column.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // Every line ends in a newline. Where a line would be longer than `columns`, each row becomes a
  // block of lines, a header and a cell in each, with an empty line between blocks. 0: never.
  std::string Render(int columns = 0) const;

 private:
  std::string RenderBlocks() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_FORMAT_TABLE_H_
