#include "client/read/table_rows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace annulus::client {
namespace {

constexpr size_t kMostColumns = 16384;  // as in spreadsheets
constexpr size_t kMostPlaced = size_t{1} << 20;
constexpr size_t kMostRepeatedBytes = 200;  // a longer text stands in its first row alone

// The text of a cell without empty lines; on one line if it is a header.
std::string Tidied(const TableCell& cell, absl::string_view text) {
  std::string tidy;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    absl::string_view line = absl::StripTrailingAsciiWhitespace(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (cell.header) line = absl::StripLeadingAsciiWhitespace(line);
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StrAppend(&tidy, tidy.empty() ? "" : cell.header ? " " : "\n", line);
  }
  return tidy;
}

}  // namespace

void TableRows::Put(absl::string_view text) {
  if (row_.size() < kMostColumns) row_.emplace_back(text);
}

// Adds the cells that span down into this row.
void TableRows::PassSpans() {
  while (row_.size() < spans_.size() && spans_[row_.size()].rows > 0) {
    Span& span = spans_[row_.size()];
    --span.rows;
    Place(span.text);
  }
}

// Adds a cell that stands only for a span. Gives up spans if a table has absurdly many.
void TableRows::Place(absl::string_view text) {
  if (++placed_ > kMostPlaced) {
    spans_.clear();
    return;
  }
  Put(text);
}

void TableRows::BeginRow() { row_.clear(); }

void TableRows::Skip(int columns) {
  for (int i = 0; i < columns && row_.size() < kMostColumns && placed_ <= kMostPlaced; ++i) {
    Place("");
  }
}

void TableRows::Add(const TableCell& cell, std::string text) {
  PassSpans();
  text = Tidied(cell, text);
  const size_t at = row_.size();
  if (cell.continues && text.empty() && at < above_.size()) text = above_[at];
  const bool is_short = text.size() <= kMostRepeatedBytes;
  const int copies = std::max(cell.copies, 1);
  const int columns = std::max(cell.columns, 1);
  constexpr int kToTheEnd = 65534;  // as in browsers
  const int below = cell.rows == 0 ? kToTheEnd : std::min(cell.rows, kToTheEnd) - 1;
  for (int copy = 0; copy < copies && row_.size() < kMostColumns; ++copy) {
    for (int column = 0; column < columns && row_.size() < kMostColumns; ++column) {
      const bool first = copy == 0 && column == 0;
      const bool repeats = is_short && (column == 0 || cell.header);
      if (placed_ > kMostPlaced && !first) return;
      if (below > 0 && placed_ <= kMostPlaced) {
        if (spans_.size() <= row_.size()) spans_.resize(row_.size() + 1);
        spans_[row_.size()] = {below, repeats ? text : ""};
      }
      if (first) {
        Put(text);
      } else {
        Place(repeats ? text : "");
      }
    }
  }
}

std::string TableRows::EndRow() {
  PassSpans();
  // Columns further right, behind a gap that has no cell.
  while (!spans_.empty() && spans_.back().rows == 0) spans_.pop_back();
  while (row_.size() < spans_.size()) {
    Place("");
    PassSpans();
  }
  while (!row_.empty() && row_.back().empty()) row_.pop_back();
  std::string line;
  for (const std::string& text : row_) {
    absl::StrAppend(&line, "| ", text, text.empty() ? "" : " ");
  }
  above_ = std::move(row_);
  row_.clear();
  return line.empty() ? line : line + "|";
}

}  // namespace annulus::client
