#ifndef ANNULUS_CLIENT_READ_OFFICE_LIST_MARKS_H_
#define ANNULUS_CLIENT_READ_OFFICE_LIST_MARKS_H_

#include <array>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::client {

// The mark of items in lists without numbers.
inline constexpr char kBulletMark[] = "- ";

// Formats 3 as "3", "c", "C", "iii" or "III". `form` is the number format's name in docx
// ("lowerRoman") or odt ("i"); any other name means decimal. Numbers that the format cannot express
// (below 1, above 3999 in Roman, above 104 in letters) are decimal too.
std::string FormatListNumber(int number, absl::string_view form);

// Computes the marks of numbered paragraphs in a docx, as word/numbering.xml defines them. Call
// Next in the order of the text.
class DocxNumbering {
 public:
  // `root` is the document element of word/numbering.xml, or null: then all marks are bullets.
  explicit DocxNumbering(const pugi::xml_node& root);

  // Counts one item at `level` (0 is the outermost) of a list and returns its mark: "3. ", or "- "
  // if the level has bullets or the list is unknown.
  std::string Next(const std::string& list, int level);

 private:
  static constexpr int kLevels = 9;
  struct Level {
    std::string form = "bullet";
    std::string text;  // a template: "%1.%2." has the numbers of levels 1 and 2
    int start = 1;
  };
  struct List {
    std::string abstract;       // id of its abstract list; lists with the same one share counts
    std::map<int, int> starts;  // by level: the number to restart at when the list is first used
  };

  static Level ReadLevel(const pugi::xml_node& node);

  std::map<std::string, std::array<Level, kLevels>> abstracts_;
  std::map<std::string, List> lists_;
  std::map<std::string, std::array<std::optional<int>, kLevels>> counts_;  // of abstract lists
  std::set<std::string> used_;  // ids of the lists used so far
};

// Computes the marks of list items in an odt. Call Enter and Leave at the beginning and end of
// every list, in the order of the text.
class OdtNumbering {
 public:
  // Adds the list styles that are grandchildren of `node`, the document element of a part.
  void AddStyles(const pugi::xml_node& node);

  void Enter(const pugi::xml_node& list);
  void Leave();
  // Counts one item of the innermost open list and returns its mark.
  std::string Next(const pugi::xml_node& item);

 private:
  struct Level {
    std::string form;  // empty: a bullet
    std::string prefix;
    std::string suffix;
    int start = 1;
    int shown = 1;  // how many levels the mark shows: 2 for "1.3"
  };
  struct Open {
    std::string style;
    int count = 0;
  };

  const Level* LevelAt(size_t depth) const;

  std::map<std::string, std::map<int, Level>> styles_;
  std::vector<Open> open_;
  std::map<std::string, int> last_;  // by depth and style: the count at the end of the last list
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_LIST_MARKS_H_
