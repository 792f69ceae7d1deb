#ifndef ANNULUS_CLIENT_READ_WEB_PAGE_STYLE_H_
#define ANNULUS_CLIENT_READ_WEB_PAGE_STYLE_H_

#include <map>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::client {

// Tells which elements of a page a browser does not show: by their attributes, and by rules of
// style sheets whose selector is one name with classes or an id ("p.note", "#menu"). Rules for
// other selectors, for media and for colours, positions and sizes above zero are not judged.
class PageStyle {
 public:
  // Adds the rules of a style sheet. Takes the first 1,000 that show or hide.
  void Add(absl::string_view sheet);

  bool Hides(const pugi::xml_node& element) const;

 private:
  struct Rule {
    std::string tag;  // empty: any
    std::string id;   // empty: any
    std::vector<std::string> classes;
    int weight = 0;  // specificity
    bool hides = false;
  };

  void AddRule(absl::string_view selector, bool hides);
  void Match(const std::string& key, const pugi::xml_node& element, const Rule** best) const;

  std::vector<Rule> rules_;                           // in the order of the sheets
  std::map<std::string, std::vector<size_t>> index_;  // by "#id", ".class" or tag: rules
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_WEB_PAGE_STYLE_H_
