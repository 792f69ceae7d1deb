#include "client/read/html.h"

#include <gumbo.h>

#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/read/html_tree.h"
#include "client/read/kind.h"
#include "client/read/text_builder.h"

namespace annulus::client {
namespace {

// Name of the encoding that a page declares at its beginning; empty if it declares none.
std::string DeclaredEncoding(absl::string_view page) {
  const std::string head = absl::AsciiStrToLower(page.substr(0, kDetectBytes));
  for (const std::string key : {"charset=", "encoding="}) {
    const size_t at = head.find(key);
    if (at == std::string::npos) continue;
    absl::string_view rest = absl::string_view(head).substr(at + key.size());
    absl::ConsumePrefix(&rest, "\"") || absl::ConsumePrefix(&rest, "'");
    const std::string name(rest.substr(0, rest.find_first_of("\"' />;?")));
    // Browsers treat Latin-1 as Windows-1252.
    return name == "iso-8859-1" || name == "latin1" ? "windows-1252" : name;
  }
  return "";
}

bool IsHidden(GumboTag tag) {
  return tag == GUMBO_TAG_HEAD || tag == GUMBO_TAG_SCRIPT || tag == GUMBO_TAG_STYLE ||
         tag == GUMBO_TAG_TEMPLATE || tag == GUMBO_TAG_NOSCRIPT || tag == GUMBO_TAG_SVG ||
         tag == GUMBO_TAG_IFRAME || tag == GUMBO_TAG_SELECT || tag == GUMBO_TAG_TEXTAREA;
}

int HeadingLevel(GumboTag tag) {
  switch (tag) {
    case GUMBO_TAG_H1:
      return 1;
    case GUMBO_TAG_H2:
      return 2;
    case GUMBO_TAG_H3:
      return 3;
    case GUMBO_TAG_H4:
      return 4;
    case GUMBO_TAG_H5:
      return 5;
    case GUMBO_TAG_H6:
      return 6;
    default:
      return 0;
  }
}

bool IsParagraph(GumboTag tag) {
  switch (tag) {
    case GUMBO_TAG_P:
    case GUMBO_TAG_BLOCKQUOTE:
    case GUMBO_TAG_SECTION:
    case GUMBO_TAG_ARTICLE:
    case GUMBO_TAG_ASIDE:
    case GUMBO_TAG_HEADER:
    case GUMBO_TAG_FOOTER:
    case GUMBO_TAG_NAV:
    case GUMBO_TAG_MAIN:
    case GUMBO_TAG_FIGURE:
    case GUMBO_TAG_DL:
    case GUMBO_TAG_TABLE:
    case GUMBO_TAG_HR:
      return true;
    default:
      return false;
  }
}

bool IsLine(GumboTag tag) {
  switch (tag) {
    case GUMBO_TAG_DIV:
    case GUMBO_TAG_DT:
    case GUMBO_TAG_DD:
    case GUMBO_TAG_CAPTION:
    case GUMBO_TAG_FIGCAPTION:
    case GUMBO_TAG_ADDRESS:
    case GUMBO_TAG_FORM:
    case GUMBO_TAG_FIELDSET:
    case GUMBO_TAG_DETAILS:
    case GUMBO_TAG_SUMMARY:
    case GUMBO_TAG_TR:
    case GUMBO_TAG_TD:
    case GUMBO_TAG_TH:
      return true;
    default:
      return false;
  }
}

bool IsList(GumboTag tag) { return tag == GUMBO_TAG_UL || tag == GUMBO_TAG_OL; }

// Calls enter(node) and leave(node) for all nodes in page order, without recursion. If enter
// returns false, the node and its descendants are skipped, and leave is not called for it.
template <typename Enter, typename Leave>
void Walk(const GumboNode* root, const Enter& enter, const Leave& leave) {
  struct Place {
    const GumboNode* node;
    unsigned int next = 0;  // index of the next child
  };
  std::vector<Place> path;
  if (enter(root)) path.push_back({root});
  while (!path.empty()) {
    Place& place = path.back();
    const GumboNode* node = place.node;
    const bool is_element = node->type == GUMBO_NODE_ELEMENT || node->type == GUMBO_NODE_TEMPLATE;
    if (is_element && place.next < node->v.element.children.length) {
      const auto* child =
          static_cast<const GumboNode*>(node->v.element.children.data[place.next++]);
      if (enter(child)) path.push_back({child});
    } else {
      leave(node);
      path.pop_back();
    }
  }
}

GumboTag TagOf(const GumboNode* node) {
  return node->type == GUMBO_NODE_ELEMENT || node->type == GUMBO_NODE_TEMPLATE ? node->v.element.tag
                                                                               : GUMBO_TAG_UNKNOWN;
}

// Whether an element is marked as this part of a footnote, in EPUB ("epub:type") or ARIA ("role").
bool IsNotePart(const GumboNode* node, absl::string_view part) {
  constexpr std::pair<const char*, absl::string_view> kAttributes[] = {{"epub:type", ""},
                                                                       {"role", "doc-"}};
  for (const auto& [name, prefix] : kAttributes) {
    const GumboAttribute* value = gumbo_get_attribute(&node->v.element.attributes, name);
    if (value == nullptr) continue;
    for (absl::string_view word : absl::StrSplit(value->value, ' ')) {
      if (absl::ConsumePrefix(&word, prefix) && word == part) return true;
    }
  }
  return false;
}

bool IsNoteReference(const GumboNode* node) {
  return TagOf(node) == GUMBO_TAG_A && IsNotePart(node, "noteref");
}

// Finds the tables that lay out the page instead of holding data: those that contain headings,
// lists or other tables.
std::unordered_set<const GumboNode*> ArrangingTables(const GumboNode* root) {
  std::unordered_set<const GumboNode*> arranging;
  std::vector<const GumboNode*> open;
  Walk(
      root,
      [&](const GumboNode* node) {
        const GumboTag tag = TagOf(node);
        const bool arranged = tag == GUMBO_TAG_TABLE || HeadingLevel(tag) > 0 || IsList(tag);
        if (arranged && !open.empty()) arranging.insert(open.back());
        if (tag == GUMBO_TAG_TABLE) open.push_back(node);
        return true;
      },
      [&](const GumboNode* node) {
        if (TagOf(node) == GUMBO_TAG_TABLE) open.pop_back();
      });
  return arranging;
}

class PageText {
 public:
  explicit PageText(const GumboNode* root) : arranging_(ArrangingTables(root)) {
    Walk(
        root, [this](const GumboNode* node) { return Enter(node); },
        [this](const GumboNode* node) { Leave(node); });
  }

  std::string Take() {
    const std::string title = title_.Take();
    const std::string heading =
        has_heading_ || title.empty() ? "" : absl::StrCat("# ", title, "\n");
    return absl::StrCat(heading, text_.Take());
  }

 private:
  bool Enter(const GumboNode* node) {
    switch (node->type) {
      case GUMBO_NODE_TEXT:
      case GUMBO_NODE_CDATA:
      case GUMBO_NODE_WHITESPACE:
        if (pre_depth_ > 0) {
          text_.Verbatim(node->v.text.text);
        } else {
          text_.Flow(node->v.text.text);
        }
        return false;
      case GUMBO_NODE_ELEMENT:
        return EnterElement(node);
      default:
        return false;
    }
  }

  bool EnterElement(const GumboNode* node) {
    const GumboTag tag = node->v.element.tag;
    if (tag == GUMBO_TAG_HEAD) FindTitle(node);
    if (IsHidden(tag)) return false;
    // Skip the link from a note back to the text: it is only an arrow to click.
    if (tag == GUMBO_TAG_A && IsNotePart(node, "backlink")) return false;
    if (IsNoteReference(node)) text_.Flow("[^");
    if (tag == GUMBO_TAG_BR) text_.EndLine();
    if (IsParagraph(tag) || HeadingLevel(tag) > 0 || tag == GUMBO_TAG_PRE) text_.EndParagraph();
    if (tag == GUMBO_TAG_PRE) ++pre_depth_;
    if (HeadingLevel(tag) > 0) {
      has_heading_ = true;
      text_.Prefix(absl::StrCat(std::string(static_cast<size_t>(HeadingLevel(tag)), '#'), " "));
    }
    if (IsList(tag)) {
      counts_.push_back(tag == GUMBO_TAG_OL ? FirstNumber(node) : kNoNumber);
      text_.BeginList();
    }
    if (tag == GUMBO_TAG_LI) BeginItem(IsNotePart(node, "footnote") || IsNotePart(node, "endnote"));
    if (tag == GUMBO_TAG_TABLE) tables_.push_back(arranging_.count(node) == 0);
    if (tag == GUMBO_TAG_TR && InData()) {
      text_.BeginRow();
    } else if ((tag == GUMBO_TAG_TD || tag == GUMBO_TAG_TH) && InData()) {
      text_.BeginCell();
    } else if (IsLine(tag)) {
      text_.EndLine();
    }
    return true;
  }

  void Leave(const GumboNode* node) {
    const GumboTag tag = TagOf(node);
    if (IsNoteReference(node)) text_.Flow("]");
    if (HeadingLevel(tag) > 0 || tag == GUMBO_TAG_LI) text_.Prefix("");
    if (IsParagraph(tag) || HeadingLevel(tag) > 0 || tag == GUMBO_TAG_PRE) text_.EndParagraph();
    if (tag == GUMBO_TAG_PRE) --pre_depth_;
    if (IsList(tag)) {
      counts_.pop_back();
      text_.EndList();
    }
    if (tag == GUMBO_TAG_LI) text_.EndLine();
    if (tag == GUMBO_TAG_TR && InData()) {
      text_.EndRow();
    } else if (IsLine(tag) && tag != GUMBO_TAG_TD && tag != GUMBO_TAG_TH) {
      text_.EndLine();
    }
    if (tag == GUMBO_TAG_TABLE) tables_.pop_back();
  }

  void BeginItem(bool is_note) {
    if (counts_.empty() || counts_.back() == kNoNumber) return text_.BeginItem("- ");
    const int number = counts_.back()++;
    text_.BeginItem(is_note ? absl::StrCat("[^", number, "]: ") : absl::StrCat(number, ". "));
  }

  static int FirstNumber(const GumboNode* list) {
    const GumboAttribute* start = gumbo_get_attribute(&list->v.element.attributes, "start");
    const int number = start == nullptr ? 1 : std::atoi(start->value);
    return number > 0 && number < 1000000 ? number : 1;
  }

  void FindTitle(const GumboNode* head) {
    Walk(
        head,
        [&](const GumboNode* node) {
          if (node->type == GUMBO_NODE_TEXT && node->parent != nullptr &&
              TagOf(node->parent) == GUMBO_TAG_TITLE) {
            title_.Flow(node->v.text.text);
          }
          return TagOf(node) == GUMBO_TAG_HEAD || TagOf(node) == GUMBO_TAG_TITLE;
        },
        [](const GumboNode*) {});
  }

  // Whether the innermost open table holds data.
  bool InData() const { return !tables_.empty() && tables_.back(); }

  static constexpr int kNoNumber = 0;
  const std::unordered_set<const GumboNode*> arranging_;
  TextBuilder text_;
  TextBuilder title_;
  std::vector<int> counts_;   // next number of each open list
  std::vector<bool> tables_;  // whether each open table holds data
  int pre_depth_ = 0;
  bool has_heading_ = false;
};

}  // namespace

absl::StatusOr<Utf8Text> ReadHtml(absl::string_view what, std::string bytes, ReadBudget& budget) {
  if (static_cast<int64_t>(bytes.size()) > budget.limits().html_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " is a page of more than ", budget.limits().html_bytes >> 20,
                     " MiB; split it or convert it to plain text first"));
  }
  const std::string declared = DeclaredEncoding(bytes);
  absl::StatusOr<Utf8Text> page = ToUtf8(what, std::move(bytes), declared);
  if (!page.ok()) return page;
  const auto tree = HtmlTree::Parse(what, page->text, budget);
  if (!tree.ok()) return tree.status();
  page->text = PageText((*tree)->root()).Take();
  return page;
}

}  // namespace annulus::client
