#include "bench/report/row.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/format/json.h"
#include "client/format/table.h"
#include "client/format/units.h"

namespace annulus::bench {
namespace {

// 963e9 -> "963 G", 4.5e10 -> "45 G", 812.3 -> "812".
std::string FormatLarge(double value) {
  constexpr struct {
    double unit;
    const char* suffix;
  } kUnits[] = {{1e12, " T"}, {1e9, " G"}, {1e6, " M"}};
  for (const auto& [unit, suffix] : kUnits) {
    if (value >= unit) return absl::StrCat(client::FormatRate(value / unit), suffix);
  }
  return client::FormatRate(value);
}

// Below this, whole milliseconds say too little.
constexpr double kShortSeconds = 0.1;

std::string FormatNumber(double value, Row::Unit unit) {
  if (!std::isfinite(value)) return "-";
  switch (unit) {
    case Row::Unit::kPlain:
      return absl::StrFormat("%.4g", value);
    case Row::Unit::kCount:
      return client::FormatCount(static_cast<int64_t>(value));
    case Row::Unit::kSeconds:
      return value < kShortSeconds ? absl::StrFormat("%.3g ms", value * 1e3)
                                   : client::FormatDuration(value);
    case Row::Unit::kPerSecond:
      return FormatLarge(value);
    case Row::Unit::kShare:
      return absl::StrFormat("%.3f", value);
    case Row::Unit::kBytes:
      return client::FormatBytes(static_cast<int64_t>(value));
  }
  return "";
}

}  // namespace

void Row::Add(absl::string_view name, std::string json, std::string text, bool number) {
  fields_.push_back({std::string(name), std::move(json), std::move(text), number, table_});
}

Row& Row::Text(absl::string_view name, absl::string_view value) {
  Add(name, client::JsonWriter().String(value).text(), std::string(value), false);
  return *this;
}

Row& Row::Int(absl::string_view name, int64_t value, Unit unit) {
  const std::string text = unit == Unit::kCount ? client::FormatCount(value)
                                                : FormatNumber(static_cast<double>(value), unit);
  Add(name, client::JsonWriter().Int(value).text(), text, true);
  return *this;
}

Row& Row::Number(absl::string_view name, double value, Unit unit) {
  Add(name, client::JsonWriter().Double(value).text(), FormatNumber(value, unit), true);
  return *this;
}

std::string Row::Json() const {
  std::string text = "{";
  for (const Field& field : fields_) {
    absl::StrAppend(&text, text.size() > 1 ? "," : "",
                    client::JsonWriter().String(field.name).text(), ":", field.json);
  }
  return text + "}";
}

std::vector<std::string> Row::Columns() const {
  std::vector<std::string> names;
  for (const Field& field : fields_) {
    if (field.table) names.push_back(field.name);
  }
  return names;
}

void RowWriter::Write(const Row& row) {
  if (output_.json_copy != nullptr) *output_.json_copy << row.Json() << "\n" << std::flush;
  if (output_.format == RowOutput::Format::kJson) {
    output_.out << row.Json() << "\n" << std::flush;
    return;
  }
  if (!rows_.empty() && row.Columns() != rows_.back().Columns()) Finish();
  rows_.push_back(row);
}

void RowWriter::Finish() {
  if (rows_.empty()) return;
  if (wrote_) output_.out << "\n";
  wrote_ = true;
  output_.out << (output_.format == RowOutput::Format::kMarkdown ? MarkdownText() : TableText())
              << std::flush;
  rows_.clear();
}

std::string RowWriter::TableText() const {
  std::vector<client::Table::Column> columns;
  for (const Row::Field& field : rows_.front().fields_) {
    if (!field.table) continue;
    columns.push_back(
        {field.name, field.number ? client::Table::Align::kRight : client::Table::Align::kLeft});
  }
  client::Table table(std::move(columns));
  for (const Row& row : rows_) {
    std::vector<std::string> cells;
    for (const Row::Field& field : row.fields_) {
      if (field.table) cells.push_back(field.text);
    }
    table.AddRow(std::move(cells));
  }
  return table.Render();
}

std::string RowWriter::MarkdownText() const {
  std::string head = "|";
  std::string rule = "|";
  for (const Row::Field& field : rows_.front().fields_) {
    if (!field.table) continue;
    absl::StrAppend(&head, " ", field.name, " |");
    absl::StrAppend(&rule, field.number ? "--:|" : "---|");
  }
  std::string text = absl::StrCat(head, "\n", rule, "\n");
  for (const Row& row : rows_) {
    absl::StrAppend(&text, "|");
    for (const Row::Field& field : row.fields_) {
      if (field.table) absl::StrAppend(&text, " ", field.text, " |");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace annulus::bench
