#include "client/format/table.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/format/text.h"

namespace annulus {

std::string Table::Render() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(DisplayWidth(columns_[c].header));
    for (const auto& row : rows_) widths[c] = std::max(widths[c], DisplayWidth(row[c]));
  }
  std::string result;
  const auto append_row = [&](const auto& cell_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = cell_of(c);
      const std::string blanks(widths[c] - DisplayWidth(cell), ' ');
      const bool right = columns_[c].align == Align::kRight;
      absl::StrAppend(&line, c > 0 ? "  " : "", right ? blanks : "", cell, right ? "" : blanks);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&result, line, "\n");
  };
  append_row([&](size_t c) -> const std::string& { return columns_[c].header; });
  for (const auto& row : rows_) {
    append_row([&](size_t c) -> const std::string& { return row[c]; });
  }
  return result;
}

}  // namespace annulus
