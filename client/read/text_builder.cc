#include "client/read/text_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/read/characters.h"

namespace annulus::client {
namespace {

constexpr absl::string_view kStruck = "~~";
constexpr size_t kMostTables = 8;  // inside each other; a cell further in joins its outer cell

bool IsBlank(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)) || c == '\0'; }

bool AllOf(absl::string_view text, bool (*test)(char)) {
  return !text.empty() && std::all_of(text.begin(), text.end(), test);
}

// A number with or without a sign, or letters alone: "^" or "_" before it needs no brackets.
bool IsAtom(absl::string_view text) {
  absl::string_view number = text;
  absl::ConsumePrefix(&number, "-") || absl::ConsumePrefix(&number, "+") ||
      absl::ConsumePrefix(&number, "\xE2\x88\x92");
  if (number.empty()) return true;
  const auto in_number = [](char c) { return IsDigit(c) || c == '.' || c == ','; };
  if (IsDigit(number.front()) && AllOf(number, in_number)) return true;
  return AllOf(number, [](char c) { return IsWordByte(c) && !IsDigit(c); });
}

// Whether text is raised by custom and means the same on the line.
bool IsOnlyForLooks(absl::string_view raised, absl::string_view before) {
  if (absl::StartsWith(raised, "[")) return true;  // a note
  for (const char* sign : {"*", "**", "***", "\xC2\xAE", "\xE2\x84\xA2", "\xC2\xA9", "\xE2\x80\xA0",
                           "\xE2\x80\xA1", "\xC2\xA7", "\xC2\xB0", "#", "TM"}) {
    if (raised == sign) return true;
  }
  if (!before.empty() && IsDigit(before.back())) {
    for (const char* ordinal : {"st", "nd", "rd", "th"}) {
      if (raised == ordinal) return true;
    }
  }
  // A sentence that is set high or low.
  constexpr size_t kMostBytes = 60;
  return raised.size() > kMostBytes || absl::StrContains(raised, '\n');
}

}  // namespace

// Writes the mark of a script that has ended. `next` is the character that touches it, or a blank.
void TextBuilder::SettleScript(char next) {
  Frame& frame = top();
  const Script script = std::exchange(frame.script, Script::kNone);
  if (!std::exchange(frame.script_begun, false)) return;
  const std::string content = frame.text.substr(std::min(frame.script_begin, frame.text.size()));
  std::string& text = frame.text;
  text.resize(text.size() - content.size());
  // Digits above a bar and below it are a fraction, which must not touch a number before it.
  absl::string_view bar;
  for (const absl::string_view sign : {"/", "\xE2\x81\x84"}) {
    if (script == Script::kSub && absl::EndsWith(text, sign)) bar = sign;
  }
  if (!bar.empty() && AllOf(content, IsDigit)) {
    const size_t end = text.size() - bar.size();
    size_t begin = end;
    while (begin > 0 && IsDigit(text[begin - 1])) --begin;
    if (begin > 0 && begin < end && text[begin - 1] == '^') {
      const std::string numerator = text.substr(begin, end - begin);
      text.resize(begin - 1);
      const bool touches = !text.empty() && IsWordByte(text.back());
      absl::StrAppend(&text, touches ? " " : "", numerator, "/", content);
      frame.after_formula = true;
      return;
    }
  }
  if (script == Script::kSuper ? IsOnlyForLooks(content, text) : content.size() > 60) {
    text += content;
    return;
  }
  const bool joins = IsWordByte(next) && IsWordByte(content.back()) &&
                     !(IsDigit(content.back()) && !IsDigit(next));
  absl::StrAppend(&text, script == Script::kSuper ? "^" : "_");
  absl::StrAppend(&text, IsAtom(content) && !joins ? content : absl::StrCat("(", content, ")"));
}

void TextBuilder::Start(char first) {
  Frame& frame = top();
  const bool inside = frame.script_depth > 0;
  if (frame.script != Script::kNone && !inside) SettleScript(frame.blank_pending ? ' ' : first);
  if (frame.line_open && std::exchange(frame.after_formula, false) && IsWordByte(first) &&
      !frame.text.empty() && IsWordByte(frame.text.back())) {
    frame.blank_pending = true;
  }
  if (!frame.line_open) {
    if (frame.gap_pending && !frame.text.empty()) frame.text += '\n';
    frame.gap_pending = false;
    frame.text += std::exchange(frame.prefix, "");
  } else if (frame.blank_pending && !absl::EndsWith(frame.text, " ")) {
    frame.text += ' ';
  }
  frame.blank_pending = false;
  frame.line_open = true;
  if (frame.struck_depth > 0 && !std::exchange(frame.struck_begun, true)) {
    absl::StrAppend(&frame.text, kStruck);
  }
  if (inside && !std::exchange(frame.script_begun, true)) frame.script_begin = frame.text.size();
}

void TextBuilder::Flow(absl::string_view text) {
  Frame& frame = top();
  while (!text.empty()) {
    const auto word = std::find_if_not(text.begin(), text.end(), IsBlank);
    // A space at the start of a sub- or superscript would separate it from its base.
    const bool begins_script = frame.script_depth > 0 && !frame.script_begun;
    frame.blank_pending =
        frame.blank_pending || (word != text.begin() && frame.line_open && !begins_script);
    const auto end = std::find_if(word, text.end(), IsBlank);
    if (word == end) return;
    Start(*word);
    frame.text.append(word, end);
    text.remove_prefix(static_cast<size_t>(end - text.begin()));
  }
}

void TextBuilder::Verbatim(absl::string_view text) {
  if (text.empty()) return;
  Start(text.front());
  absl::StrAppend(&top().text, text);
}

void TextBuilder::Apart(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.empty()) return;
  Frame& frame = top();
  if (frame.script_depth == 0 && frame.script != Script::kNone) {
    SettleScript(frame.blank_pending ? ' ' : text.front());
  }
  if (frame.line_open && !frame.text.empty() && IsWordByte(frame.text.back()) &&
      IsWordByte(text.front())) {
    frame.blank_pending = true;
  }
  Flow(text);
  frame.after_formula = true;
}

void TextBuilder::BeginScript(Script kind) {
  Frame& frame = top();
  if (frame.script_depth++ > 0) return;
  const bool goes_on = frame.script == kind && frame.script_begun && !frame.blank_pending;
  if (goes_on) return;
  if (frame.script != Script::kNone) SettleScript('^');
  frame.script = kind;
  frame.script_begun = false;
}

void TextBuilder::EndScript() {
  Frame& frame = top();
  if (frame.script_depth > 0) --frame.script_depth;
  if (frame.script_depth == 0 && !frame.script_begun) frame.script = Script::kNone;
}

void TextBuilder::BeginStruck() {
  Frame& frame = top();
  if (frame.struck_depth++ > 0) return;
  const bool goes_on = frame.line_open && !frame.blank_pending && frame.struck_end > 0 &&
                       frame.struck_end == frame.text.size();
  if (goes_on) frame.text.resize(frame.text.size() - kStruck.size());
  frame.struck_begun = goes_on;
}

void TextBuilder::EndStruck() {
  Frame& frame = top();
  if (frame.struck_depth == 0 || --frame.struck_depth > 0) return;
  CloseStruck();
}

void TextBuilder::CloseStruck() {
  Frame& frame = top();
  if (!std::exchange(frame.struck_begun, false)) return;
  if (frame.script_depth == 0 && frame.script != Script::kNone) SettleScript(' ');
  absl::StrAppend(&frame.text, kStruck);
  frame.struck_end = frame.text.size();
}

void TextBuilder::TrimLine() {
  std::string& text = top().text;
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\n')) {
    text.pop_back();
  }
}

void TextBuilder::EndLine() {
  Frame& frame = top();
  frame.blank_pending = false;
  if (!frame.line_open) return;
  const Script script = frame.script;
  if (script != Script::kNone) SettleScript(' ');
  if (frame.script_depth > 0) frame.script = script;  // it goes on in the next line
  TrimLine();
  CloseStruck();
  frame.text += '\n';
  frame.line_open = false;
  frame.after_formula = false;
}

void TextBuilder::EndParagraph() {
  EndLine();
  // No empty line between a pending prefix and its text: an item may hold a paragraph.
  if (top().prefix.empty()) top().gap_pending = true;
}

void TextBuilder::BeginList() {
  if (top().list_depth++ > 0) return EndLine();
  EndParagraph();
  top().first_item = true;
}

void TextBuilder::EndList() {
  if (--top().list_depth > 0) return EndLine();
  top().list_depth = 0;
  EndParagraph();
}

void TextBuilder::BeginItem(absl::string_view mark) {
  EndLine();
  Frame& frame = top();
  // No empty line between the items of a list.
  if (frame.list_depth > 0 && !frame.first_item) frame.gap_pending = false;
  frame.first_item = false;
  const auto indent = static_cast<size_t>(2 * std::clamp(frame.list_depth - 1, 0, 7));
  Prefix(absl::StrCat(std::string(indent, ' '), mark));
}

void TextBuilder::BeginTable() {
  EndLine();
  tables_.emplace_back();
}

void TextBuilder::BeginRow() {
  // The row of the innermost table that has none yet.
  rows_.push_back({tables_.size() > rows_.size() && rows_.size() < kMostTables});
  if (!rows_.back().counts) return EndLine();
  EndLine();
  tables_[rows_.size() - 1].BeginRow();
}

void TextBuilder::SkipColumns(int columns) {
  if (!rows_.empty() && rows_.back().counts) tables_[rows_.size() - 1].Skip(columns);
}

void TextBuilder::BeginCell(const TableCell& cell) {
  const bool counts = !rows_.empty() && rows_.back().counts && rows_.back().cells == 0;
  cells_.push_back(counts);
  if (!counts) return EndLine();
  ++rows_.back().cells;
  frames_.emplace_back();
  open_cell_.push_back(cell);
}

void TextBuilder::EndCell() {
  if (cells_.empty()) return;
  const bool counted = cells_.back();
  cells_.pop_back();
  if (!counted) return EndLine();
  // Elements that are still open end with the cell.
  EndLine();
  std::string text = std::move(top().text);
  frames_.pop_back();
  --rows_.back().cells;
  tables_[rows_.size() - 1].Add(open_cell_.back(), std::move(text));
  open_cell_.pop_back();
}

void TextBuilder::EndRow() {
  if (rows_.empty()) return;
  const bool counted = rows_.back().counts;
  if (counted) Verbatim(tables_[rows_.size() - 1].EndRow());
  rows_.pop_back();
  EndLine();
}

void TextBuilder::EndRowGroup() {
  if (!tables_.empty()) tables_.back().EndGroup();
}

void TextBuilder::EndTable() {
  EndLine();
  if (!tables_.empty()) tables_.pop_back();
}

std::string TextBuilder::Take() {
  while (!cells_.empty()) EndCell();
  EndLine();
  return std::move(top().text);
}

}  // namespace annulus::client
