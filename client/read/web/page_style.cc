#include "client/read/web/page_style.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace annulus::client {
namespace {

constexpr size_t kMostRules = 1000;

std::vector<absl::string_view> Words(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t\n\r\f"), absl::SkipEmpty());
}

// Whether declarations hide the element; nullopt if they do not set it.
std::optional<bool> HidingOf(absl::string_view declarations) {
  std::optional<bool> hides;
  for (const absl::string_view declaration : absl::StrSplit(declarations, ';')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(declaration, absl::MaxSplits(':', 1));
    const std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(parts.first));
    std::string value = absl::AsciiStrToLower(absl::StripAsciiWhitespace(parts.second));
    value = std::string(absl::StripAsciiWhitespace(value.substr(0, value.find('!'))));
    if (value.empty()) continue;
    double number = 1;
    const std::string digits = value.substr(0, value.find_first_not_of("0123456789."));
    const bool is_zero = absl::SimpleAtod(digits, &number) && number == 0;
    if (name == "display") {
      hides = hides.value_or(false) || value == "none";
    } else if (name == "visibility") {
      hides = hides.value_or(false) || value == "hidden" || value == "collapse";
    } else if (name == "opacity" || name == "font-size") {
      hides = hides.value_or(false) || is_zero;
    } else if (name == "content-visibility") {
      hides = hides.value_or(false) || value == "hidden";
    }
  }
  return hides;
}

std::string WithoutComments(absl::string_view sheet) {
  std::string plain;
  while (true) {
    const size_t at = std::min(sheet.find("/*"), sheet.size());
    absl::StrAppend(&plain, sheet.substr(0, at));
    const size_t end = sheet.find("*/", at);
    if (at == sheet.size() || end == absl::string_view::npos) return plain;
    sheet.remove_prefix(end + 2);
  }
}

}  // namespace

void PageStyle::Add(absl::string_view sheet) {
  const std::string plain = WithoutComments(sheet);
  absl::string_view rest = plain;
  while (rules_.size() < kMostRules) {
    const size_t open = rest.find('{');
    if (open == absl::string_view::npos) return;
    absl::string_view selectors = rest.substr(0, open);
    // Statements without a block, such as @import, end with a semicolon.
    selectors = selectors.substr(selectors.rfind(';') + 1);
    selectors = absl::StripAsciiWhitespace(selectors);
    rest.remove_prefix(open + 1);
    if (absl::StartsWith(selectors, "@")) {
      // Rules for media and the like: what applies is not known here.
      int depth = 1;
      size_t at = 0;
      for (; at < rest.size() && depth > 0; ++at) {
        depth += rest[at] == '{' ? 1 : rest[at] == '}' ? -1 : 0;
      }
      rest.remove_prefix(at);
      continue;
    }
    const size_t close = std::min(rest.find('}'), rest.size());
    const std::optional<bool> hides = HidingOf(rest.substr(0, close));
    if (hides.has_value()) {
      for (const absl::string_view selector : absl::StrSplit(selectors, ',')) {
        AddRule(absl::StripAsciiWhitespace(selector), *hides);
      }
    }
    rest.remove_prefix(std::min(close + 1, rest.size()));
  }
}

void PageStyle::AddRule(absl::string_view selector, bool hides) {
  const bool is_simple = selector.find_first_of(" \t\n\r>+~:[*") == absl::string_view::npos;
  if (!is_simple || selector.empty() || rules_.size() >= kMostRules) return;
  Rule rule;
  rule.hides = hides;
  std::string key;
  while (!selector.empty()) {
    const size_t end = std::min(selector.find_first_of(".#", 1), selector.size());
    const absl::string_view part = selector.substr(0, end);
    selector.remove_prefix(end);
    if (part[0] == '#') {
      rule.id = std::string(part.substr(1));
      rule.weight += 100;
      key = std::string(part);
    } else if (part[0] == '.') {
      rule.classes.emplace_back(part.substr(1));
      rule.weight += 10;
      if (!absl::StartsWith(key, "#")) key = std::string(part);
    } else {
      rule.tag = absl::AsciiStrToLower(part);
      rule.weight += 1;
      key = rule.tag;
    }
  }
  index_[key].push_back(rules_.size());
  rules_.push_back(std::move(rule));
}

void PageStyle::Match(const std::string& key, const pugi::xml_node& element,
                      const Rule** best) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return;
  const std::vector<absl::string_view> classes = Words(element.attribute("class").value());
  for (const size_t at : found->second) {
    const Rule& rule = rules_[at];
    if (*best != nullptr && rule.weight < (*best)->weight) continue;
    // Of equal weight, the later rule wins.
    if (*best != nullptr && rule.weight == (*best)->weight && &rule < *best) continue;
    absl::string_view tag = element.name();
    tag = tag.substr(tag.rfind(':') + 1);
    if (!rule.tag.empty() && rule.tag != tag) continue;
    if (!rule.id.empty() && rule.id != element.attribute("id").value()) continue;
    const bool has_all =
        std::all_of(rule.classes.begin(), rule.classes.end(), [&](const auto& name) {
          return std::find(classes.begin(), classes.end(), name) != classes.end();
        });
    if (has_all) *best = &rule;
  }
}

bool PageStyle::Hides(const pugi::xml_node& element) const {
  if (element.attribute("hidden")) return true;
  if (const pugi::xml_attribute style = element.attribute("style"); style) {
    const std::optional<bool> hides = HidingOf(style.value());
    if (hides.has_value()) return *hides;
  }
  if (rules_.empty()) return false;
  const Rule* best = nullptr;
  absl::string_view tag = element.name();
  Match(std::string(tag.substr(tag.rfind(':') + 1)), element, &best);
  if (const char* id = element.attribute("id").value(); id[0] != '\0') {
    Match(absl::StrCat("#", id), element, &best);
  }
  for (const absl::string_view name : Words(element.attribute("class").value())) {
    Match(absl::StrCat(".", name), element, &best);
  }
  return best != nullptr && best->hides;
}

}  // namespace annulus::client
