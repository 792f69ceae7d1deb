#ifndef ANNULUS_CLIENT_READ_WEB_PAGE_SURVEY_H_
#define ANNULUS_CLIENT_READ_WEB_PAGE_SURVEY_H_

#include <map>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <unordered_set>

#include "absl/strings/string_view.h"
#include "client/read/web/page_style.h"

namespace annulus::client {

// What is known of a page before its text is written. `PageSurvey` of one page may add to what the
// pages of a book share.
struct BookLinks {
  std::map<std::string, std::string> note_labels;  // by "entry#id": what cites the note ("1")
  std::set<std::string> cited;                     // entries that pages link to
};

class PageSurvey {
 public:
  // `entry` is the page's name in its book; empty if it stands alone. `links` gets what the page
  // cites.
  PageSurvey(const pugi::xml_node& root, const std::string& entry, BookLinks* links);

  PageStyle& style() { return style_; }
  const PageStyle& style() const { return style_; }
  // Whether a table lays out the page instead of holding data.
  bool Arranges(const pugi::xml_node& table) const {
    return arranging_.count(table.hash_value()) > 0;
  }
  // Whether an element leads through the site: a menu, a path, links to the pages around.
  bool Navigates(const pugi::xml_node& element) const {
    return navigation_.count(element.hash_value()) > 0;
  }
  // What cites the note that an element is; empty if it is none.
  const std::string& NoteLabel(const pugi::xml_node& element) const;

 private:
  struct Table;
  void SurveyTables(const pugi::xml_node& root);
  void SurveyLinks(const pugi::xml_node& root);
  void SurveyNotes(const pugi::xml_node& root);

  const std::string entry_;
  BookLinks& links_;
  PageStyle style_;
  std::unordered_set<size_t> arranging_;
  std::unordered_set<size_t> navigation_;
};

// The name of an element without its prefix; empty for a text.
absl::string_view PageName(const pugi::xml_node& node);

// Whether an element is marked as this part of a footnote, in EPUB ("epub:type") or ARIA ("role").
bool IsNotePart(const pugi::xml_node& node, absl::string_view part);

// Whether a link cites a note: it is marked so, or it is raised and its text is a number or a sign.
bool IsNoteReference(const pugi::xml_node& node);

// Resolves a link on the page `entry` ("text/a.xhtml") to "entry#id", or "entry" without an id.
// Empty for a link out of the book.
std::string LinkTarget(absl::string_view entry, absl::string_view href);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_WEB_PAGE_SURVEY_H_
