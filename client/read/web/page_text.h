#ifndef ANNULUS_CLIENT_READ_WEB_PAGE_TEXT_H_
#define ANNULUS_CLIENT_READ_WEB_PAGE_TEXT_H_

#include <pugixml.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/read/context.h"
#include "client/read/text_builder.h"
#include "client/read/web/page_survey.h"

namespace annulus::client {

// Writes the text of one page.
class PageText {
 public:
  // Navigation is left out unless `with_navigation`. `survey` must outlive this.
  PageText(const PageSurvey& survey, const ReadOptions& options, bool with_navigation)
      : survey_(survey), options_(options), with_navigation_(with_navigation) {}

  std::string Read(const pugi::xml_node& root);

  const LeftOut& left_out() const { return left_out_; }
  bool left_navigation() const { return left_navigation_; }

 private:
  bool Enter(const pugi::xml_node& node);
  bool EnterElement(const pugi::xml_node& node, absl::string_view name);
  bool IsSkipped(const pugi::xml_node& node, absl::string_view name);
  void Leave(const pugi::xml_node& node);
  void Text(const pugi::xml_node& node);
  bool EnterNote(const pugi::xml_node& node, absl::string_view name);
  bool EnterTablePart(const pugi::xml_node& node, absl::string_view name);
  bool LeaveTablePart(absl::string_view name);
  void Picture(const pugi::xml_node& node);
  void FormValue(const pugi::xml_node& node);
  void BeginList(const pugi::xml_node& node);
  void BeginItem(const pugi::xml_node& node);
  void EnterSize(const pugi::xml_node& node);
  void SelectValue(const pugi::xml_node& node);
  void FindTitle(const pugi::xml_node& head);
  void BeginTable(const pugi::xml_node& table);
  // Whether the innermost open table holds data.
  bool InData() const { return !tables_.empty() && tables_.back(); }

  const PageSurvey& survey_;
  const ReadOptions& options_;
  const bool with_navigation_;
  LeftOut left_out_;
  TextBuilder text_;
  TextBuilder title_;
  // An open list.
  struct List {
    bool numbered = false;
    int next = 1;
    int step = 1;      // -1: it counts down
    std::string form;  // "a", "A", "i" or "I": how it numbers
  };
  // An element that gives its letters a size, or none.
  struct Size {
    size_t id;
    bool none = false;
  };
  std::vector<List> lists_;
  std::vector<Size> sizes_;   // of the open elements that set it
  std::vector<bool> tables_;  // whether each open table holds data
  std::string own_label_;     // of the note that begins here: it stands in the note too
  bool label_alone_ = false;  // it stood in an element of its own
  int pre_depth_ = 0;
  int svg_depth_ = 0;       // pictures that are drawn by elements
  int svg_text_depth_ = 0;  // their texts
  int head_depth_ = 0;      // header rows and cells that are open
  bool has_heading_ = false;
  bool left_navigation_ = false;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_WEB_PAGE_TEXT_H_
