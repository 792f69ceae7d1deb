#ifndef ANNULUS_CLIENT_READ_LIST_MARKS_H_
#define ANNULUS_CLIENT_READ_LIST_MARKS_H_

#include <array>
#include <map>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// What stands before the items of lists that have no numbers.
inline constexpr char kBulletMark[] = "- ";

// "3", "c", "C", "iii" or "III" for 3 by the name that docx ("lowerRoman") or odt ("i") has for it;
// any other name is decimal. Numbers that a form cannot write are decimal too.
std::string FormatListNumber(int number, absl::string_view form);

// The marks of numbered paragraphs in a docx, which word/numbering.xml describes. Ask for them in
// the order of the text.
class DocxNumbering {
 public:
  // `root` is the document element of word/numbering.xml. Null: all marks are bullets.
  explicit DocxNumbering(const pugi::xml_node& root);

  // "3. ", or "- " if the list has bullets or is unknown.
  std::string Next(const std::string& list, int level);

 private:
  static constexpr int kLevels = 9;
  struct Level {
    std::string form = "bullet";
    std::string text;  // "%1.%2." stands for the numbers of two levels and what is between
    int start = 1;
  };
  struct List {
    std::string abstract;       // lists of one abstract list count on
    std::map<int, int> starts;  // number that a level has at the first use of this list
  };

  static Level ReadLevel(const pugi::xml_node& node);

  std::map<std::string, std::array<Level, kLevels>> abstracts_;
  std::map<std::string, List> lists_;
  std::map<std::string, std::array<int, kLevels>> counts_;  // of abstract lists; 0: none yet
  std::set<std::string> used_;                              // lists
};

// The marks of lists in an odt. Lists are entered and left as the text has them.
class OdtNumbering {
 public:
  // Takes the list styles below `node`, at any of the places where a part may have them.
  void AddStyles(const pugi::xml_node& node);

  void Enter(const pugi::xml_node& list);
  void Leave();
  // Of the innermost list.
  std::string Next(const pugi::xml_node& item);

 private:
  struct Level {
    std::string form;  // empty: a bullet
    std::string prefix;
    std::string suffix;
    int start = 1;
    int shown = 1;  // levels
  };
  struct Open {
    std::string style;
    int count = 0;
  };

  const Level* LevelAt(size_t depth) const;

  std::map<std::string, std::map<int, Level>> styles_;
  std::vector<Open> open_;
  std::map<std::string, int> last_;  // count of the latest list of a style, by style and depth
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_LIST_MARKS_H_
