#ifndef ANNULUS_CLIENT_READ_OFFICE_ODT_STYLES_H_
#define ANNULUS_CLIENT_READ_OFFICE_ODT_STYLES_H_

#include <map>
#include <pugixml.hpp>
#include <string>

#include "absl/strings/string_view.h"
#include "client/read/text_builder.h"

namespace annulus::client {

// The properties of text that matter for plain text.
struct OdtStyle {
  Script script = Script::kNone;
  bool hidden = false;
  bool struck = false;
  bool code = false;  // blanks and lines are kept
  std::string font;
};

// The styles of paragraphs and text of an odt, each with what it inherits.
class OdtStyles {
 public:
  // Adds the styles that are grandchildren of `part`, the document element of a part. `part` must
  // outlive this.
  void Add(const pugi::xml_node& part);

  OdtStyle Of(absl::string_view name) const;

 private:
  std::map<std::string, pugi::xml_node> nodes_;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_ODT_STYLES_H_
