#include "client/read/web/page_style.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace annulus::client {
namespace {

constexpr size_t kMostRules = 1000;

std::vector<absl::string_view> Words(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t\n\r\f"), absl::SkipEmpty());
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

// Whether a rule for media ("@media screen, print") holds on every screen.
bool IsForScreens(absl::string_view at_rule) {
  std::string text = absl::AsciiStrToLower(at_rule);
  absl::string_view media = text;
  if (absl::StartsWith(media, "@layer")) return true;
  if (!absl::ConsumePrefix(&media, "@media")) return false;
  for (const absl::string_view part : absl::StrSplit(media, ',')) {
    absl::string_view medium = absl::StripAsciiWhitespace(part);
    absl::ConsumePrefix(&medium, "only ");
    if (medium == "screen" || medium == "all") return true;
  }
  return false;
}

}  // namespace

PageStyle::Declared PageStyle::Parse(absl::string_view declarations) {
  Declared declared;
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
    const bool hid = declared.hides.value_or(false);
    if (name == "display") {
      declared.hides = hid || value == "none";
    } else if (name == "visibility") {
      declared.hides = hid || value == "hidden" || value == "collapse";
    } else if (name == "opacity") {
      declared.hides = hid || is_zero;
    } else if (name == "content-visibility") {
      declared.hides = hid || value == "hidden";
    } else if (name == "font-size" && value != "inherit") {
      declared.no_size = is_zero;
    }
  }
  return declared;
}

void PageStyle::Add(absl::string_view sheet) {
  const std::string plain = WithoutComments(sheet);
  absl::string_view rest = plain;
  while (rules_.size() < kMostRules) {
    const size_t open = rest.find('{');
    if (open == absl::string_view::npos) return;
    absl::string_view selectors = rest.substr(0, open);
    // Statements without a block, such as @import, end with a semicolon; a block around others, as
    // of @media, with a brace.
    selectors = selectors.substr(selectors.find_last_of(";}") + 1);
    selectors = absl::StripAsciiWhitespace(selectors);
    rest.remove_prefix(open + 1);
    if (absl::StartsWith(selectors, "@")) {
      if (IsForScreens(selectors)) continue;  // its rules come next
      int depth = 1;
      size_t at = 0;
      for (; at < rest.size() && depth > 0; ++at) {
        depth += rest[at] == '{' ? 1 : rest[at] == '}' ? -1 : 0;
      }
      rest.remove_prefix(at);
      continue;
    }
    const size_t close = std::min(rest.find('}'), rest.size());
    const Declared declared = Parse(rest.substr(0, close));
    if (declared.hides.has_value() || declared.no_size.has_value()) {
      for (const absl::string_view selector : absl::StrSplit(selectors, ',')) {
        AddRule(absl::StripAsciiWhitespace(selector), declared);
      }
    }
    rest.remove_prefix(std::min(close + 1, rest.size()));
  }
}

bool PageStyle::ParseCompound(absl::string_view text, Compound* compound, int* weight) {
  while (!text.empty()) {
    const bool is_attribute = text[0] == '[';
    const size_t end = is_attribute ? std::min(text.find(']'), text.size() - 1) + 1
                                    : std::min(text.find_first_of(".#[", 1), text.size());
    absl::string_view part = text.substr(0, end);
    text.remove_prefix(end);
    if (is_attribute) {
      part = part.substr(1, part.size() - 2);
      const size_t equals = part.find('=');
      std::optional<std::string> value;
      if (equals != absl::string_view::npos) {
        absl::string_view quoted = part.substr(equals + 1);
        if (absl::ConsumePrefix(&quoted, "\"")) absl::ConsumeSuffix(&quoted, "\"");
        if (absl::ConsumePrefix(&quoted, "'")) absl::ConsumeSuffix(&quoted, "'");
        value = std::string(quoted);
      }
      const std::string name = absl::AsciiStrToLower(part.substr(0, equals));
      // Of "[class~=x]" and the like, nothing is known here.
      if (name.empty() || absl::StrContains("~|^$*", name.back())) return false;
      compound->attributes.emplace_back(name, std::move(value));
      *weight += 10;
    } else if (part[0] == '#') {
      compound->id = std::string(part.substr(1));
      *weight += 100;
    } else if (part[0] == '.') {
      compound->classes.emplace_back(part.substr(1));
      *weight += 10;
    } else {
      compound->tag = part == "*" ? "" : absl::AsciiStrToLower(part);
      *weight += part == "*" ? 0 : 1;
    }
  }
  return true;
}

bool PageStyle::ParseSelector(absl::string_view selector, Rule* rule) {
  constexpr size_t kMostParts = 8;
  const std::string spaced = absl::StrReplaceAll(selector, {{">", " > "}});
  bool is_parent = false;
  for (const absl::string_view word : Words(spaced)) {
    if (word == ">") {
      if (rule->path.empty() || is_parent) return false;
      rule->path.back().is_parent = is_parent = true;
      continue;
    }
    is_parent = false;
    Compound compound;
    if (word.find_first_of(":+~") != absl::string_view::npos || rule->path.size() == kMostParts ||
        !ParseCompound(word, &compound, &rule->weight)) {
      return false;
    }
    rule->path.push_back(std::move(compound));
  }
  return !rule->path.empty() && !is_parent;
}

void PageStyle::AddRule(absl::string_view selector, const Declared& declared) {
  Rule rule;
  rule.declared = declared;
  if (rules_.size() >= kMostRules || !ParseSelector(selector, &rule)) return;
  const Compound& self = rule.path.back();
  const std::string key = !self.id.empty()        ? absl::StrCat("#", self.id)
                          : !self.classes.empty() ? absl::StrCat(".", self.classes.back())
                                                  : self.tag;
  index_[key].push_back(rules_.size());
  rules_.push_back(std::move(rule));
}

bool PageStyle::Fits(const Compound& compound, const pugi::xml_node& element) {
  absl::string_view tag = element.name();
  tag = tag.substr(tag.rfind(':') + 1);
  if (tag.empty() || (!compound.tag.empty() && compound.tag != tag)) return false;
  if (!compound.id.empty() && compound.id != element.attribute("id").value()) return false;
  for (const auto& [name, value] : compound.attributes) {
    const pugi::xml_attribute attribute = element.attribute(name.c_str());
    if (!attribute || (value.has_value() && *value != attribute.value())) return false;
  }
  const std::vector<absl::string_view> classes = Words(element.attribute("class").value());
  return std::all_of(compound.classes.begin(), compound.classes.end(),
                     [&](const std::string& name) {
                       return std::find(classes.begin(), classes.end(), name) != classes.end();
                     });
}

// Whether the elements around an element fit the outer parts of a selector. Takes the nearest that
// fits, without a second try.
bool PageStyle::FitsAround(const Rule& rule, const pugi::xml_node& element) const {
  pugi::xml_node around = element.parent();
  for (size_t i = rule.path.size() - 1; i-- > 0;) {
    const Compound& outer = rule.path[i];
    while (around && !Fits(outer, around) && !outer.is_parent && steps_left_ > 0) {
      around = around.parent();
      --steps_left_;
    }
    if (!around || !Fits(outer, around)) return false;
    around = around.parent();
  }
  return true;
}

void PageStyle::Match(const std::string& key, const pugi::xml_node& element,
                      std::optional<bool> Declared::*property, const Rule** best) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return;
  for (const size_t at : found->second) {
    const Rule& rule = rules_[at];
    if (!(rule.declared.*property).has_value()) continue;
    if (*best != nullptr && rule.weight < (*best)->weight) continue;
    // Of equal weight, the later rule wins.
    if (*best != nullptr && rule.weight == (*best)->weight && &rule < *best) continue;
    if (Fits(rule.path.back(), element) && FitsAround(rule, element)) *best = &rule;
  }
}

std::optional<bool> PageStyle::Of(const pugi::xml_node& element,
                                  std::optional<bool> Declared::*property) const {
  if (const pugi::xml_attribute style = element.attribute("style"); style) {
    const std::optional<bool> own = Parse(style.value()).*property;
    if (own.has_value()) return own;
  }
  if (rules_.empty()) return std::nullopt;
  const Rule* best = nullptr;
  Match("", element, property, &best);
  absl::string_view tag = element.name();
  Match(std::string(tag.substr(tag.rfind(':') + 1)), element, property, &best);
  if (const char* id = element.attribute("id").value(); id[0] != '\0') {
    Match(absl::StrCat("#", id), element, property, &best);
  }
  for (const absl::string_view name : Words(element.attribute("class").value())) {
    Match(absl::StrCat(".", name), element, property, &best);
  }
  return best == nullptr ? std::nullopt : best->declared.*property;
}

bool PageStyle::Hides(const pugi::xml_node& element) const {
  return element.attribute("hidden") || Of(element, &Declared::hides).value_or(false);
}

std::optional<bool> PageStyle::HasNoSize(const pugi::xml_node& element) const {
  return Of(element, &Declared::no_size);
}

}  // namespace annulus::client
