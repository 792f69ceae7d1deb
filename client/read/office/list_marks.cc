#include "client/read/office/list_marks.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

// Larger numbers in a document are cut to this one.
constexpr int kMostCounted = 1000000;

int NumberAt(const pugi::xml_node& node, absl::string_view attribute, int otherwise) {
  int number = 0;
  if (!absl::SimpleAtoi(LocalAttribute(node, attribute), &number)) return otherwise;
  return std::clamp(number, 0, kMostCounted);
}

std::string Roman(int number) {
  constexpr std::pair<int, const char*> kRoman[] = {
      {1000, "m"}, {900, "cm"}, {500, "d"}, {400, "cd"}, {100, "c"}, {90, "xc"}, {50, "l"},
      {40, "xl"},  {10, "x"},   {9, "ix"},  {5, "v"},    {4, "iv"},  {1, "i"}};
  std::string text;
  for (const auto& [value, letters] : kRoman) {
    for (; number >= value; number -= value) text += letters;
  }
  return text;
}

// 1 to 26 are a to z, 27 to 52 are aa to zz, and so on.
std::string Letters(int number) {
  return std::string(static_cast<size_t>((number - 1) / 26 + 1),
                     static_cast<char>('a' + (number - 1) % 26));
}

// Makes the text that a document puts before an item a mark on one line.
std::string MarkOf(std::string text) {
  for (char& c : text) c = absl::ascii_iscntrl(static_cast<unsigned char>(c)) ? ' ' : c;
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  return trimmed.empty() ? kBulletMark : absl::StrCat(trimmed, " ");
}

}  // namespace

std::string FormatListNumber(int number, absl::string_view form) {
  const bool upper = absl::StartsWith(form, "upper") || form == "A" || form == "I";
  std::string text = absl::StrCat(number);
  if (number >= 1 && number < 4000) {
    if (absl::EndsWith(form, "Roman") || form == "i" || form == "I") text = Roman(number);
  }
  if (number >= 1 && number <= 26 * 4) {
    if (absl::EndsWith(form, "Letter") || form == "a" || form == "A") text = Letters(number);
  }
  return upper ? absl::AsciiStrToUpper(text) : text;
}

DocxNumbering::Level DocxNumbering::ReadLevel(const pugi::xml_node& node) {
  Level level;
  level.form = std::string(LocalAttribute(LocalChild(node, "numFmt"), "val"));
  level.text = std::string(LocalAttribute(LocalChild(node, "lvlText"), "val"));
  level.start = NumberAt(LocalChild(node, "start"), "val", 1);
  return level;
}

DocxNumbering::DocxNumbering(const pugi::xml_node& root) {
  for (const pugi::xml_node& node : root.children()) {
    if (LocalName(node) == "abstractNum") {
      auto& levels = abstracts_[std::string(LocalAttribute(node, "abstractNumId"))];
      for (const pugi::xml_node& child : node.children()) {
        const int at = NumberAt(child, "ilvl", kLevels);
        if (LocalName(child) == "lvl" && at < kLevels) levels[at] = ReadLevel(child);
      }
    } else if (LocalName(node) == "num") {
      List& list = lists_[std::string(LocalAttribute(node, "numId"))];
      list.abstract = std::string(LocalAttribute(LocalChild(node, "abstractNumId"), "val"));
      for (const pugi::xml_node& child : node.children()) {
        const pugi::xml_node start = LocalChild(child, "startOverride");
        const int at = NumberAt(child, "ilvl", kLevels);
        if (start && at < kLevels) list.starts[at] = NumberAt(start, "val", 1);
      }
    }
  }
}

std::string DocxNumbering::Next(const std::string& list_id, int level) {
  const auto list = lists_.find(list_id);
  if (list == lists_.end()) return kBulletMark;
  const auto abstract = abstracts_.find(list->second.abstract);
  if (abstract == abstracts_.end()) return kBulletMark;
  level = std::clamp(level, 0, kLevels - 1);
  std::array<std::optional<int>, kLevels>& counts = counts_[list->second.abstract];
  const std::array<Level, kLevels>& levels = abstract->second;
  const bool is_first = used_.insert(list_id).second;
  const auto anew = list->second.starts.find(level);
  if (is_first && anew != list->second.starts.end()) {
    counts[level] = anew->second;
  } else {
    counts[level] = counts[level].has_value() ? *counts[level] + 1 : levels[level].start;
  }
  std::fill(counts.begin() + level + 1, counts.end(), std::nullopt);
  if (levels[level].form == "bullet" || levels[level].form == "none") return kBulletMark;
  std::string text;
  const std::string& form = levels[level].text;
  for (size_t i = 0; i < form.size(); ++i) {
    const bool is_number =
        form[i] == '%' && i + 1 < form.size() && form[i + 1] >= '1' && form[i + 1] <= '9';
    if (!is_number) {
      text += form[i];
      continue;
    }
    const int at = form[++i] - '1';
    const int count = counts[at].value_or(levels[at].start);
    absl::StrAppend(&text, FormatListNumber(count, levels[at].form));
  }
  return MarkOf(std::move(text));
}

void OdtNumbering::AddStyles(const pugi::xml_node& node) {
  for (const pugi::xml_node& group : node.children()) {
    for (const pugi::xml_node& style : group.children()) {
      if (LocalName(style) != "list-style") continue;
      std::map<int, Level>& levels = styles_[std::string(LocalAttribute(style, "name"))];
      for (const pugi::xml_node& child : style.children()) {
        if (LocalName(child) != "list-level-style-number") continue;
        Level& level = levels[NumberAt(child, "level", 1)];
        level.form = std::string(LocalAttribute(child, "num-format"));
        level.prefix = std::string(LocalAttribute(child, "num-prefix"));
        level.suffix = std::string(LocalAttribute(child, "num-suffix"));
        level.start = NumberAt(child, "start-value", 1);
        level.shown = std::clamp(NumberAt(child, "display-levels", 1), 1, 10);
      }
    }
  }
}

const OdtNumbering::Level* OdtNumbering::LevelAt(size_t depth) const {
  const auto style = styles_.find(open_[depth].style);
  if (style == styles_.end()) return nullptr;
  const auto level = style->second.find(static_cast<int>(depth) + 1);
  return level == style->second.end() || level->second.form.empty() ? nullptr : &level->second;
}

void OdtNumbering::Enter(const pugi::xml_node& list) {
  std::string style(LocalAttribute(list, "style-name"));
  if (style.empty() && !open_.empty()) style = open_.back().style;
  open_.push_back({style, 0});
  const Level* const level = LevelAt(open_.size() - 1);
  const bool goes_on = LocalAttribute(list, "continue-numbering") == "true" ||
                       !LocalAttribute(list, "continue-list").empty();
  const auto last = last_.find(absl::StrCat(open_.size(), " ", style));
  open_.back().count = goes_on && last != last_.end() ? last->second
                       : level != nullptr             ? level->start - 1
                                                      : 0;
}

void OdtNumbering::Leave() {
  last_[absl::StrCat(open_.size(), " ", open_.back().style)] = open_.back().count;
  open_.pop_back();
}

std::string OdtNumbering::Next(const pugi::xml_node& item) {
  if (open_.empty()) return kBulletMark;
  Open& open = open_.back();
  open.count = NumberAt(item, "start-value", open.count + 1);
  const Level* const level = LevelAt(open_.size() - 1);
  if (level == nullptr) return kBulletMark;
  std::string text = level->prefix;
  const size_t shown = std::min(static_cast<size_t>(level->shown), open_.size());
  for (size_t depth = open_.size() - shown; depth < open_.size(); ++depth) {
    const Level* const outer = LevelAt(depth);
    if (outer == nullptr) continue;
    absl::StrAppend(&text, FormatListNumber(open_[depth].count, outer->form),
                    depth + 1 < open_.size() ? "." : "");
  }
  return MarkOf(absl::StrCat(text, level->suffix));
}

}  // namespace annulus::client
