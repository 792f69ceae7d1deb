#ifndef ANNULUS_BENCH_REPORT_ROW_H_
#define ANNULUS_BENCH_REPORT_ROW_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// One measurement: named values in the order they were added. A JSON object on one line for
// programs, a line of a table for people.
class Row {
 public:
  // How people read a number; JSON has it in its base unit.
  enum class Unit { kPlain, kCount, kSeconds, kPerSecond, kShare, kBytes };

  Row& Text(absl::string_view name, absl::string_view value);
  Row& Int(absl::string_view name, int64_t value, Unit unit = Unit::kCount);
  // Values that JSON lacks (infinity, NaN) become null.
  Row& Number(absl::string_view name, double value, Unit unit = Unit::kPlain);

  // What is added from here on appears in JSON only.
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

// Where rows go, and how.
struct RowOutput {
  enum class Format { kTable, kMarkdown, kJson };
  std::ostream& out;
  Format format = Format::kTable;
  std::ostream* json_copy = nullptr;  // also gets every row as JSON
};

// Writes rows of JSON as they come; tables when they end, which is where the columns change.
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
  std::vector<Row> rows_;  // of one set of columns
  bool wrote_ = false;     // a table
};

}  // namespace annulus

#endif  // ANNULUS_BENCH_REPORT_ROW_H_
