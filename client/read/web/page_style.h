#ifndef ANNULUS_CLIENT_READ_WEB_PAGE_STYLE_H_
#define ANNULUS_CLIENT_READ_WEB_PAGE_STYLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::client {

// Tells which elements of a page a browser does not show: by their attributes, and by rules of
// style sheets for names, classes, ids and attributes ("p.note", "#menu", "[data-x=y]"), also
// inside others ("#menu p", "div > p"). Rules for other selectors, for media other than the screen,
// and for colours, positions and sizes above zero are not judged.
class PageStyle {
 public:
  // Adds the rules of a style sheet. Takes the first 1,000 that show or hide.
  void Add(absl::string_view sheet);

  // Whether the element is not shown, with all that is in it.
  bool Hides(const pugi::xml_node& element) const;

  // Whether its letters have no size, which elements in it may change; nullopt if nothing says so.
  std::optional<bool> HasNoSize(const pugi::xml_node& element) const;

 private:
  // What declarations say; nullopt: nothing.
  struct Declared {
    std::optional<bool> hides;
    std::optional<bool> no_size;
  };
  // One element of a selector.
  struct Compound {
    std::string tag;  // empty: any
    std::string id;   // empty: any
    std::vector<std::string> classes;
    std::vector<std::pair<std::string, std::optional<std::string>>> attributes;
    bool is_parent = false;  // of the next one, not only around it
  };
  struct Rule {
    std::vector<Compound> path;  // from the outermost to the element itself
    int weight = 0;              // specificity
    Declared declared;
  };

  static Declared Parse(absl::string_view declarations);
  static bool ParseSelector(absl::string_view selector, Rule* rule);
  static bool ParseCompound(absl::string_view text, Compound* compound, int* weight);
  static bool Fits(const Compound& compound, const pugi::xml_node& element);
  bool FitsAround(const Rule& rule, const pugi::xml_node& element) const;
  void AddRule(absl::string_view selector, const Declared& declared);
  void Match(const std::string& key, const pugi::xml_node& element,
             std::optional<bool> Declared::*property, const Rule** best) const;
  std::optional<bool> Of(const pugi::xml_node& element,
                         std::optional<bool> Declared::*property) const;

  std::vector<Rule> rules_;                           // in the order of the sheets
  std::map<std::string, std::vector<size_t>> index_;  // by "#id", ".class", tag or "": rules
  // To elements around others; a page that needs more has rules that are no longer judged.
  mutable int64_t steps_left_ = int64_t{100} << 20;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_WEB_PAGE_STYLE_H_
