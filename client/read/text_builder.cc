#include "client/read/text_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace annulus::client {

void TextBuilder::Start() {
  if (!line_open_) {
    if (gap_pending_ && !text_.empty()) text_ += '\n';
    gap_pending_ = false;
    text_ += std::exchange(prefix_, "");
  } else if (blank_pending_ && !absl::EndsWith(text_, " ")) {
    text_ += ' ';
  }
  blank_pending_ = false;
  line_open_ = true;
}

void TextBuilder::Flow(absl::string_view text) {
  while (!text.empty()) {
    const auto is_blank = [](char c) { return absl::ascii_isspace(c) || c == '\0'; };
    const auto word = std::find_if_not(text.begin(), text.end(), is_blank);
    blank_pending_ = blank_pending_ || (word != text.begin() && line_open_);
    const auto end = std::find_if(word, text.end(), is_blank);
    if (word == end) return;
    Start();
    text_.append(word, end);
    text.remove_prefix(static_cast<size_t>(end - text.begin()));
  }
}

void TextBuilder::Verbatim(absl::string_view text) {
  if (row_depth_ > 0) return Flow(text);
  if (text.empty()) return;
  Start();
  absl::StrAppend(&text_, text);
}

void TextBuilder::TrimLine() {
  while (!text_.empty() && (text_.back() == ' ' || text_.back() == '\t' || text_.back() == '\n')) {
    text_.pop_back();
  }
}

void TextBuilder::EndLine() {
  if (row_depth_ > 0) {
    blank_pending_ = line_open_;
    return;
  }
  blank_pending_ = false;
  if (!line_open_) return;
  TrimLine();
  text_ += '\n';
  line_open_ = false;
}

void TextBuilder::EndParagraph() {
  EndLine();
  // No empty line between a pending prefix and its text: an item may hold a paragraph.
  if (row_depth_ == 0 && prefix_.empty()) gap_pending_ = true;
}

void TextBuilder::BeginList() {
  if (list_depth_++ > 0) return EndLine();
  EndParagraph();
  first_item_ = true;
}

void TextBuilder::EndList() {
  if (--list_depth_ > 0) return EndLine();
  list_depth_ = 0;
  EndParagraph();
}

void TextBuilder::BeginItem(absl::string_view mark) {
  EndLine();
  // No empty line between the items of a list.
  if (list_depth_ > 0 && !first_item_) gap_pending_ = false;
  first_item_ = false;
  Prefix(absl::StrCat(std::string(2 * std::clamp(list_depth_ - 1, 0, 7), ' '), mark));
}

void TextBuilder::BeginRow() {
  if (row_depth_ == 0) EndLine();
  ++row_depth_;
}

void TextBuilder::BeginCell() {
  if (row_depth_ == 0) return;
  Start();
  if (absl::EndsWith(text_, " ")) text_.pop_back();
  text_ += text_.empty() || text_.back() == '\n' ? "| " : " | ";
}

void TextBuilder::EndRow() {
  if (--row_depth_ > 0) return;
  if (!line_open_) return;
  TrimLine();
  text_ += " |";
  EndLine();
}

std::string TextBuilder::Take() {
  row_depth_ = 0;
  EndLine();
  return std::move(text_);
}

}  // namespace annulus::client
