#include "client/read/web/page_survey.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/read/characters.h"
#include "client/read/web/page_tree.h"

namespace annulus::client {
namespace {

bool HasWord(absl::string_view text, absl::string_view word) {
  for (const absl::string_view part : absl::StrSplit(text, ' ')) {
    if (part == word) return true;
  }
  return false;
}

size_t CountLetters(absl::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](unsigned char c) { return !absl::ascii_isspace(c); }));
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::string Unescaped(absl::string_view href) {
  std::string path;
  for (size_t i = 0; i < href.size(); ++i) {
    const bool escaped = href[i] == '%' && i + 2 < href.size() && HexDigit(href[i + 1]) >= 0 &&
                         HexDigit(href[i + 2]) >= 0;
    path +=
        escaped ? static_cast<char>(HexDigit(href[i + 1]) * 16 + HexDigit(href[i + 2])) : href[i];
    if (escaped) i += 2;
  }
  return path;
}

// How much of an element must be links for it to count as navigation; 0: it is no candidate.
double NavigationShare(const pugi::xml_node& element) {
  const absl::string_view role = element.attribute("role").value();
  if (PageName(element) == "nav" ||
      IsOneOf(role, {"navigation", "menu", "menubar", "search", "doc-pagelist"})) {
    return 0.5;
  }
  for (const absl::string_view list :
       {element.attribute("class").value(), element.attribute("id").value()}) {
    for (const absl::string_view word : absl::StrSplit(list, ' ', absl::SkipEmpty())) {
      const std::string lower = absl::AsciiStrToLower(word);
      if (IsOneOf(lower, {"nav", "navbar", "navheader", "navfooter", "navigation", "nav-panel",
                          "navpath", "nav-path", "breadcrumb", "breadcrumbs", "menu", "skip-link",
                          "skip-links", "sitemenu", "site-nav", "main-nav", "mw-navigation",
                          "navbox", "toctree-wrapper-nav"})) {
        return 0.7;
      }
    }
  }
  return 0;
}

}  // namespace

absl::string_view PageName(const pugi::xml_node& node) {
  const absl::string_view name = node.name();
  return name.substr(name.rfind(':') + 1);
}

bool IsNotePart(const pugi::xml_node& node, absl::string_view part) {
  return HasWord(node.attribute("epub:type").value(), part) ||
         HasWord(node.attribute("role").value(), absl::StrCat("doc-", part));
}

bool IsNoteReference(const pugi::xml_node& node) {
  if (PageName(node) != "a") return false;
  if (IsNotePart(node, "noteref")) return true;
  if (IsNotePart(node, "backlink")) return false;
  const absl::string_view href = node.attribute("href").value();
  if (!absl::StrContains(href, '#')) return false;
  for (const char* marked : {"footnote-reference", "footnote-ref", "footnoteRef", "noteref"}) {
    if (HasWord(node.attribute("class").value(), marked)) return true;
  }
  // <sup><a href="#n1">1</a></sup> or <a href="#n1"><sup>1</sup></a>
  const pugi::xml_node inner = node.first_child();
  const bool raised =
      PageName(node.parent()) == "sup" || (PageName(inner) == "sup" && !inner.next_sibling());
  if (!raised) return false;
  const absl::string_view label = absl::StripAsciiWhitespace(
      PageName(inner) == "sup" ? inner.child_value() : node.child_value());
  constexpr size_t kLongestLabel = 5;
  return !label.empty() && label.size() <= kLongestLabel && !absl::StrContains(label, '[');
}

std::string LinkTarget(absl::string_view entry, absl::string_view href) {
  const size_t colon = href.find(':');
  if (colon != absl::string_view::npos && colon < href.find_first_of("/#?")) return "";
  const size_t hash = std::min(href.find('#'), href.size());
  std::string path = Unescaped(href.substr(0, hash));
  if (path.empty()) {
    path = std::string(entry);
  } else {
    const auto folder = std::filesystem::path(std::string(entry)).parent_path();
    path = (folder / path).lexically_normal().string();
  }
  return absl::StrCat(path, Unescaped(href.substr(hash)));
}

PageSurvey::PageSurvey(const pugi::xml_node& root, const std::string& entry, BookLinks* links)
    : entry_(entry), links_(*links) {
  SurveyTables(root);
  SurveyLinks(root);
  SurveyNotes(root);
}

struct PageSurvey::Table {
  size_t id;
  int rows = 0;
  int cells = 0;
  bool has_headers = false;
  bool has_headings = false;  // or tables
  bool has_blocks = false;    // lists or code
};

void PageSurvey::SurveyTables(const pugi::xml_node& root) {
  std::vector<Table> open;
  const auto enter = [&](const pugi::xml_node& node) {
    const absl::string_view name = PageName(node);
    if (!open.empty()) {
      Table& table = open.back();
      const bool is_heading =
          name.size() == 2 && name[0] == 'h' && name[1] >= '1' && name[1] <= '6';
      table.has_headings = table.has_headings || is_heading || name == "table";
      table.has_blocks = table.has_blocks || IsOneOf(name, {"ul", "ol", "dl", "pre"});
      table.has_headers = table.has_headers || name == "th" || name == "caption";
      table.rows += name == "tr" ? 1 : 0;
      table.cells += name == "td" || name == "th" ? 1 : 0;
    }
    if (name == "table") open.push_back({node.hash_value()});
    return true;
  };
  const auto leave = [&](const pugi::xml_node& node) {
    if (PageName(node) != "table") return;
    const Table& table = open.back();
    const absl::string_view role = node.attribute("role").value();
    const bool is_layout = table.has_headings || (table.has_blocks && table.rows == 1) ||
                           (table.cells == 1 && table.rows == 1);
    if (role == "presentation" || role == "none" || (is_layout && !table.has_headers)) {
      arranging_.insert(table.id);
    }
    open.pop_back();
  };
  WalkPage(root, enter, leave);
}

// Finds navigation: marked as such, and most of its text is links.
void PageSurvey::SurveyLinks(const pugi::xml_node& root) {
  struct Candidate {
    size_t id;
    double share;
    size_t letters, linked;  // before it
  };
  std::vector<Candidate> open;
  size_t letters = 0, linked = 0;
  int links = 0;
  WalkPage(
      root,
      [&](const pugi::xml_node& node) {
        if (node.type() != pugi::node_element) {
          const size_t more = CountLetters(node.value());
          letters += more;
          linked += links > 0 ? more : 0;
          return false;
        }
        if (IsOneOf(PageName(node), {"script", "style", "head"})) return false;
        if (PageName(node) == "a") {
          ++links;
          const std::string target = LinkTarget(entry_, node.attribute("href").value());
          links_.cited.insert(target.substr(0, target.find('#')));
        }
        const double share = NavigationShare(node);
        if (share > 0) open.push_back({node.hash_value(), share, letters, linked});
        return true;
      },
      [&](const pugi::xml_node& node) {
        if (PageName(node) == "a") --links;
        if (open.empty() || open.back().id != node.hash_value()) return;
        const Candidate& nav = open.back();
        const auto all = static_cast<double>(letters - nav.letters);
        if (static_cast<double>(linked - nav.linked) >= nav.share * all) navigation_.insert(nav.id);
        open.pop_back();
      });
}

void PageSurvey::SurveyNotes(const pugi::xml_node& root) {
  std::string label, target;
  WalkPage(
      root,
      [&](const pugi::xml_node& node) {
        if (IsNoteReference(node)) {
          target = LinkTarget(entry_, node.attribute("href").value());
          label.clear();
        } else if (!target.empty() && node.type() != pugi::node_element) {
          absl::StrAppend(&label, absl::StripAsciiWhitespace(node.value()));
        }
        return true;
      },
      [&](const pugi::xml_node& node) {
        if (target.empty() || !IsNoteReference(node)) return;
        constexpr size_t kLongestLabel = 20;
        if (label.size() <= kLongestLabel) links_.note_labels.emplace(target, label);
        target.clear();
      });
}

const std::string& PageSurvey::NoteLabel(const pugi::xml_node& element) const {
  static const std::string& none = *new std::string();
  if (links_.note_labels.empty()) return none;
  const char* const id = element.attribute("id").value();
  if (id[0] == '\0') return none;
  const auto found = links_.note_labels.find(absl::StrCat(entry_, "#", id));
  return found == links_.note_labels.end() ? none : found->second;
}

}  // namespace annulus::client
