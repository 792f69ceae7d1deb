#include "client/read/pdf/pdf_boxes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/read/text_builder.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

double At(const pugi::xml_node& node, absl::string_view name) {
  double value = 0;
  return absl::SimpleAtod(LocalAttribute(node, name), &value) ? value : 0;
}

struct Word {
  double left = 0, top = 0, right = 0, bottom = 0;

  double height() const { return bottom - top; }
};

// Whether a word is raised or lowered beside `base`: smaller, and off its line by more than letters
// of another size on the same line are.
Script ScriptOf(const Word& base, const Word& word) {
  constexpr double kSmaller = 0.9, kNear = 0.25;
  const double height = base.height(), gap = word.left - base.right;
  // In a line that is turned, words follow above or below.
  const bool follows = gap <= kNear * height && gap >= -kNear * word.height();
  if (word.height() > kSmaller * height || !follows) return Script::kNone;
  if (base.bottom - word.bottom > 0.25 * height) return Script::kSuper;
  const bool lower = word.bottom - base.bottom > 0.03 * height;
  return lower && word.top - base.top > 0.3 * height ? Script::kSub : Script::kNone;
}

PdfLine ReadLine(const pugi::xml_node& line) {
  PdfLine read{At(line, "xMin"), At(line, "yMin"), At(line, "xMax"), At(line, "yMax"), "", false};
  TextBuilder text;
  Word base, before;  // the last word on the line, and the last one
  for (const pugi::xml_node& node : line.children()) {
    if (LocalName(node) != "word") continue;
    const Word word{At(node, "xMin"), At(node, "yMin"), At(node, "xMax"), At(node, "yMax")};
    constexpr double kTouching = 0.06;  // parts of one word, in different fonts
    const bool touches =
        word.height() > 0 && std::abs(word.left - before.right) < kTouching * before.height();
    Script script = Script::kNone;
    // A second script at the same base, or more of the first.
    const Word reach{base.left, base.top, std::max(base.right, touches ? before.right : 0),
                     base.bottom};
    if (base.height() > 0) script = ScriptOf(reach, word);
    if (!touches) text.Flow(" ");
    if (script != Script::kNone) text.BeginScript(script);
    text.Flow(node.child_value());
    if (script != Script::kNone) text.EndScript();
    absl::StrAppend(&read.plain, node.child_value());
    read.has_scripts = read.has_scripts || script != Script::kNone;
    if (script == Script::kNone) base = word;
    before = word;
  }
  read.text = std::string(absl::StripTrailingAsciiWhitespace(text.Take()));
  return read;
}

PdfPage ReadPage(const pugi::xml_node& page) {
  PdfPage lines;
  for (const pugi::xml_node& flow : page.children()) {
    for (const pugi::xml_node& block : flow.children()) {
      for (const pugi::xml_node& line : block.children()) {
        PdfLine read = ReadLine(line);
        if (!read.text.empty()) lines.push_back(std::move(read));
      }
      if (!lines.empty()) lines.back().ends_block = true;
    }
  }
  return lines;
}

// The lines on one side of a gutter.
struct Side {
  int lines = 0;
  int blocks = 0;
  double left = 1e9, right = -1e9, top = 1e9, bottom = -1e9;
  double widths = 0;
  size_t letters = 0;

  void Add(const PdfLine& line) {
    ++lines;
    blocks += line.ends_block ? 1 : 0;
    left = std::min(left, line.left);
    right = std::max(right, line.right);
    top = std::min(top, line.top);
    bottom = std::max(bottom, line.bottom);
    widths += line.right - line.left;
    letters += line.text.size();
  }

  // Whether the lines fill their column as prose does.
  bool IsProse() const {
    constexpr int kLeastLines = 4;
    constexpr size_t kLeastLetters = 15;  // of a line, on average
    // A side may hold several columns.
    constexpr double kLeastFill = 0.4;
    // The cells of a table are blocks of their own, most of one line.
    const bool in_paragraphs = lines >= 2 * blocks;
    return lines >= kLeastLines && in_paragraphs &&
           letters >= kLeastLetters * static_cast<size_t>(lines) &&
           widths >= kLeastFill * (right - left) * lines;
  }
};

// Whether a line stands to the right of the one before it, at the same height: the next cell of a
// row.
bool IsBeside(const PdfLine& line, const PdfLine& next) {
  const double overlap = std::min(line.bottom, next.bottom) - std::max(line.top, next.top);
  const double height = std::min(line.bottom - line.top, next.bottom - next.top);
  return height > 0 && overlap * 2 > height && next.left > line.right;
}

bool IsGutter(const PdfPage& page, double x) {
  Side before, after;
  int crossing = 0;
  for (const PdfLine& line : page) {
    if (line.right <= x) {
      before.Add(line);
    } else if (line.left >= x) {
      after.Add(line);
    } else {
      ++crossing;
    }
  }
  // Titles and figures go across.
  if (!before.IsProse() || !after.IsProse() || crossing * 3 > before.lines + after.lines) {
    return false;
  }
  const double overlap = std::min(before.bottom, after.bottom) - std::max(before.top, after.top);
  return overlap * 2 >= std::min(before.bottom - before.top, after.bottom - after.top);
}

}  // namespace

absl::StatusOr<std::vector<PdfPage>> ParsePdfBoxes(absl::string_view what, absl::string_view xml,
                                                   const ReadBudget& budget) {
  std::vector<PdfPage> pages;
  constexpr absl::string_view kBegin = "<page ", kEnd = "</page>";
  while (true) {
    const size_t begin = xml.find(kBegin);
    if (begin == absl::string_view::npos) return pages;
    const size_t end = xml.find(kEnd, begin);
    if (end == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " made pdftotext stop within a page; it may be broken"));
    }
    const auto page = ParseXml(what, xml.substr(begin, end + kEnd.size() - begin), budget);
    if (page.ok()) {
      pages.push_back(ReadPage((*page)->document_element()));
    } else if (page.status().code() == absl::StatusCode::kDeadlineExceeded) {
      return page.status();
    } else {
      pages.emplace_back();  // its layout is read
    }
    xml.remove_prefix(end + kEnd.size());
  }
}

bool HasColumns(const PdfPage& page) {
  // A gutter begins where a line ends; try the ends in steps of a few points.
  constexpr double kStep = 4;
  constexpr int kMostSteps = 500;
  double left = 1e9, right = -1e9;
  for (const PdfLine& line : page) {
    left = std::min(left, line.left);
    right = std::max(right, line.right);
  }
  const double width = right - left;
  for (int i = 0; i < kMostSteps; ++i) {
    const double x = left + width / 5 + kStep * i;
    if (x > right - width / 5) break;
    if (IsGutter(page, x)) return true;
  }
  return false;
}

std::string ReadingText(const PdfPage& page) {
  std::string text;
  for (size_t i = 0; i < page.size(); ++i) {
    const PdfLine& line = page[i];
    absl::StrAppend(&text, line.text);
    if (i + 1 < page.size() && IsBeside(line, page[i + 1])) {
      text += "  ";
    } else {
      absl::StrAppend(&text, "\n", line.ends_block ? "\n" : "");
    }
  }
  return text;
}

}  // namespace annulus::client
