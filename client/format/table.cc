#include "client/format/table.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/format/text.h"

namespace annulus::client {

std::string Table::RenderBlocks() const {
  size_t width = 0;
  for (const Column& column : columns_) width = std::max(width, DisplayWidth(column.header));
  std::string result;
  for (const auto& row : rows_) {
    if (!result.empty()) result += '\n';
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string blanks(width - DisplayWidth(columns_[c].header) + 2, ' ');
      std::string line = absl::StrCat(columns_[c].header, blanks, row[c]);
      absl::StripTrailingAsciiWhitespace(&line);
      absl::StrAppend(&result, line, "\n");
    }
  }
  return result;
}

std::string Table::Render(int columns) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(DisplayWidth(columns_[c].header));
    for (const auto& row : rows_) widths[c] = std::max(widths[c], DisplayWidth(row[c]));
  }
  const size_t gaps = 2 * (columns_.size() - 1);
  const size_t width = std::accumulate(widths.begin(), widths.end(), gaps);
  if (columns > 0 && width > static_cast<size_t>(columns) && !rows_.empty()) return RenderBlocks();
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

}  // namespace annulus::client
