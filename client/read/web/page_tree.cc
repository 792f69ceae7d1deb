#include "client/read/web/page_tree.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/read/web/html_tree.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

constexpr size_t kHeadBytes = 1024;  // where a page says that it is XHTML

bool SaysXhtml(absl::string_view text) {
  const absl::string_view head = text.substr(0, kHeadBytes);
  return absl::StartsWith(absl::StripLeadingAsciiWhitespace(head), "<?xml") ||
         absl::StrContains(head, "http://www.w3.org/1999/xhtml") ||
         absl::StrContains(head, "//DTD XHTML");
}

// The name of the entity ("nbsp") whose "&" stands before `text`; empty if it is not one of HTML.
absl::string_view EntityName(absl::string_view text) {
  constexpr size_t kLongest = 32;
  const size_t end = text.substr(0, kLongest + 1).find(';');
  if (end == absl::string_view::npos || end == 0) return {};
  const absl::string_view name = text.substr(0, end);
  if (!std::all_of(name.begin(), name.end(),
                   [](unsigned char c) { return absl::ascii_isalnum(c); })) {
    return {};
  }
  for (const char* of_xml : {"amp", "lt", "gt", "quot", "apos"}) {
    if (name == of_xml) return {};
  }
  return name;
}

// What an HTML parser makes of these names, in one go.
std::map<std::string, std::string> EntityTexts(const std::set<std::string>& names,
                                               const ReadBudget& budget) {
  constexpr char kBetween[] = "\xEE\x80\x80";  // U+E000, which no entity stands for
  std::string page = "<!DOCTYPE html><p>";
  for (const std::string& name : names) absl::StrAppend(&page, "&", name, ";", kBetween);
  std::map<std::string, std::string> texts;
  const auto tree = HtmlTree::Parse("entities", page, budget);
  if (!tree.ok()) return texts;
  const GumboNode* node = (*tree)->root();
  while (node->type == GUMBO_NODE_ELEMENT && node->v.element.children.length > 0) {
    node = static_cast<const GumboNode*>(
        node->v.element.children.data[node->v.element.children.length - 1]);
  }
  if (node->type != GUMBO_NODE_TEXT) return texts;
  const std::vector<std::string> parts = absl::StrSplit(node->v.text.text, kBetween);
  size_t at = 0;
  for (const std::string& name : names) {
    if (at < parts.size() && parts[at] != absl::StrCat("&", name, ";")) texts[name] = parts[at];
    ++at;
  }
  return texts;
}

// Replaces the entities of HTML, which XHTML takes from its DTD. XML's own five stay.
std::string WithoutHtmlEntities(absl::string_view text, const ReadBudget& budget) {
  constexpr size_t kMostNames = 4096;  // HTML has 2,231
  std::set<std::string> names;
  for (size_t at = text.find('&'); at != absl::string_view::npos && names.size() < kMostNames;
       at = text.find('&', at + 1)) {
    const absl::string_view name = EntityName(text.substr(at + 1));
    if (!name.empty()) names.emplace(name);
  }
  if (names.empty()) return std::string(text);
  const auto texts = EntityTexts(names, budget);
  std::string plain;
  while (!text.empty()) {
    const size_t at = std::min(text.find('&'), text.size());
    absl::StrAppend(&plain, text.substr(0, at));
    text.remove_prefix(at);
    if (text.empty()) break;
    const absl::string_view name = EntityName(text.substr(1));
    const auto found = texts.find(std::string(name));
    if (name.empty() || found == texts.end()) {
      plain += '&';
      text.remove_prefix(1);
      continue;
    }
    for (const char c : found->second) {
      absl::StrAppend(&plain, c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c));
    }
    text.remove_prefix(name.size() + 2);
  }
  return plain;
}

bool IsVoid(absl::string_view name) {
  static const auto& names =
      *new std::set<absl::string_view>{"area",  "base", "br",   "col",   "embed",  "hr",    "img",
                                       "input", "link", "meta", "param", "source", "track", "wbr"};
  return names.count(name) > 0;
}

// Closes elements that close themselves ("<title/>") for a parser of HTML, to which the stroke
// means nothing.
std::string WithClosingTags(absl::string_view text) {
  std::string closed;
  while (true) {
    const size_t begin = std::min(text.find('<'), text.size());
    absl::StrAppend(&closed, text.substr(0, begin));
    text.remove_prefix(begin);
    if (text.empty()) return closed;
    size_t end = 1;
    if (absl::StartsWith(text, "<!--")) {
      const size_t close = text.find("-->");
      end = close == absl::string_view::npos ? text.size() : close + 3;
      absl::StrAppend(&closed, text.substr(0, end));
    } else if (text.size() > 1 && absl::ascii_isalpha(static_cast<unsigned char>(text[1]))) {
      char quote = '\0';
      for (; end < text.size() && (quote != '\0' || text[end] != '>'); ++end) {
        if (quote == '\0' ? text[end] == '"' || text[end] == '\'' : text[end] == quote) {
          quote = quote == '\0' ? text[end] : '\0';
        }
      }
      absl::string_view tag = text.substr(0, end);
      const std::string name =
          absl::AsciiStrToLower(tag.substr(1, tag.find_first_of(" \t\r\n/") - 1));
      const bool closes = absl::ConsumeSuffix(&tag, "/") && !IsVoid(name);
      absl::StrAppend(&closed, tag);
      if (closes) absl::StrAppend(&closed, "></", name);
    } else {
      closed += '<';
    }
    text.remove_prefix(end);
  }
}

std::string LowerName(const GumboNode* node) {
  const char* const known = gumbo_normalized_tagname(node->v.element.tag);
  if (known[0] != '\0') return known;
  GumboStringPiece piece = node->v.element.original_tag;
  gumbo_tag_from_original_text(&piece);
  return absl::AsciiStrToLower(absl::string_view(piece.data, piece.length));
}

// Copies one node, without its children. Null if the tree leaves it out.
pugi::xml_node Copied(const GumboNode* node, pugi::xml_node parent) {
  if (node->type == GUMBO_NODE_TEXT || node->type == GUMBO_NODE_CDATA ||
      node->type == GUMBO_NODE_WHITESPACE) {
    pugi::xml_node text = parent.append_child(pugi::node_pcdata);
    text.set_value(node->v.text.text);
    return text;
  }
  if (node->type != GUMBO_NODE_ELEMENT && node->type != GUMBO_NODE_TEMPLATE) return {};
  pugi::xml_node element = parent.append_child(LowerName(node).c_str());
  for (unsigned int i = 0; i < node->v.element.attributes.length; ++i) {
    const auto* attribute = static_cast<const GumboAttribute*>(node->v.element.attributes.data[i]);
    element.append_attribute(attribute->name).set_value(attribute->value);
  }
  return element;
}

absl::StatusOr<std::unique_ptr<pugi::xml_document>> ParseHtml(absl::string_view what,
                                                              absl::string_view text,
                                                              const ReadBudget& budget) {
  const auto tree = HtmlTree::Parse(what, text, budget);
  if (!tree.ok()) return tree.status();
  auto page = std::make_unique<pugi::xml_document>();
  struct Place {
    const GumboNode* from;
    pugi::xml_node to;
    unsigned int next = 0;  // index of the next child
  };
  std::vector<Place> path;
  path.push_back({(*tree)->root(), Copied((*tree)->root(), *page)});
  int steps = 0;
  while (!path.empty()) {
    constexpr int kStepsPerLook = 4096;
    if (++steps % kStepsPerLook == 0 && budget.TimeIsUp()) return budget.CheckTime(what);
    Place& place = path.back();
    const bool is_element =
        place.from->type == GUMBO_NODE_ELEMENT || place.from->type == GUMBO_NODE_TEMPLATE;
    if (!is_element || place.next >= place.from->v.element.children.length) {
      path.pop_back();
      continue;
    }
    const auto* child =
        static_cast<const GumboNode*>(place.from->v.element.children.data[place.next++]);
    const pugi::xml_node copy = Copied(child, place.to);
    if (copy && copy.type() == pugi::node_element) path.push_back({child, copy});
  }
  return page;
}

}  // namespace

absl::StatusOr<std::unique_ptr<pugi::xml_document>> ParsePage(absl::string_view what,
                                                              absl::string_view text, bool xhtml,
                                                              const ReadBudget& budget) {
  if (!xhtml && !SaysXhtml(text)) return ParseHtml(what, text, budget);
  auto page = ParseXml(what, WithoutHtmlEntities(text, budget), budget, XmlUse::kPage);
  // Pages that are not well-formed are parsed as browsers do.
  if (page.ok() || page.status().code() != absl::StatusCode::kInvalidArgument) return page;
  return ParseHtml(what, WithClosingTags(text), budget);
}

}  // namespace annulus::client
