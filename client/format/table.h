#ifndef ANNULUS_CLIENT_FORMAT_TABLE_H_
#define ANNULUS_CLIENT_FORMAT_TABLE_H_

#include <string>
#include <vector>

namespace annulus::client {

// A plain text table: a header row, then data rows; two blanks between columns, no trailing blanks.
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

  // Every line ends in a newline. If a line would be longer than `columns`, writes each row as a
  // block of lines instead: one header and cell per line, an empty line between blocks. `columns`
  // 0: no limit.
  std::string Render(int columns = 0) const;

 private:
  std::string RenderBlocks() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_FORMAT_TABLE_H_
