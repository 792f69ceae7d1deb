#ifndef ANNULUS_BENCH_REPORT_ROW_H_
#define ANNULUS_BENCH_REPORT_ROW_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::bench {

// One measurement: named values in the order in which they were added. Written as a JSON object on
// one line for programs, or as a line of a table for people.
class Row {
 public:
  // How tables show a number; JSON always has the base unit.
  enum class Unit { kPlain, kCount, kSeconds, kPerSecond, kShare, kBytes };

  Row& Text(absl::string_view name, absl::string_view value);
  Row& Int(absl::string_view name, int64_t value, Unit unit = Unit::kCount);
  // Values that JSON does not have (infinity, NaN) become null.
  Row& Number(absl::string_view name, double value, Unit unit = Unit::kPlain);

  // Values added from here on appear only in JSON.
  Row& OnlyJson() {
    table_ = false;
    return *this;
  }

  std::string Json() const;
  // Names of the values that a table shows.
  std::vector<std::string> Columns() const;

 private:
  friend class RowWriter;
  struct Field {
    std::string name;
    std::string json;  // the value, encoded
    std::string text;  // for people
    bool number;
    bool table;
  };
  void Add(absl::string_view name, std::string json, std::string text, bool number);

  std::vector<Field> fields_;
  bool table_ = true;
};

// Where to write rows, and in which format.
struct RowOutput {
  enum class Format { kTable, kMarkdown, kJson };
  std::ostream& out;
  Format format = Format::kTable;
  std::ostream* json_copy = nullptr;  // if not null, also gets every row as JSON
};

// Writes JSON rows at once. Writes a table when it is complete, that is, when the columns change or
// at Finish.
class RowWriter {
 public:
  explicit RowWriter(const RowOutput& output) : output_(output) {}
  ~RowWriter() { Finish(); }
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;

  void Write(const Row& row);
  // Writes the table so far.
  void Finish();

 private:
  std::string TableText() const;
  std::string MarkdownText() const;

  const RowOutput output_;
  std::vector<Row> rows_;  // with the same columns
  bool wrote_ = false;     // whether a table was written
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_REPORT_ROW_H_
