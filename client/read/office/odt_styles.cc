#include "client/read/office/odt_styles.h"

#include <vector>

#include "absl/strings/match.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

void Apply(const pugi::xml_node& properties, OdtStyle* style) {
  const absl::string_view position = LocalAttribute(properties, "text-position");
  if (!position.empty()) {
    // "super 58%", "33% 58%", "sub 58%", "-10% 80%", "0% 100%".
    const bool is_super =
        absl::StartsWith(position, "super") || (position[0] >= '1' && position[0] <= '9');
    const bool is_sub = absl::StartsWith(position, "sub") || position[0] == '-';
    style->script = is_super ? Script::kSuper : is_sub ? Script::kSub : Script::kNone;
  }
  const absl::string_view display = LocalAttribute(properties, "display");
  if (!display.empty()) style->hidden = display == "none";
  const absl::string_view line = LocalAttribute(properties, "text-line-through-style");
  if (!line.empty()) style->struck = line != "none";
  const absl::string_view font = LocalAttribute(properties, "font-name");
  if (!font.empty()) style->font = std::string(font);
}

}  // namespace

void OdtStyles::Add(const pugi::xml_node& part) {
  for (const pugi::xml_node& group : part.children()) {
    for (const pugi::xml_node& style : group.children()) {
      if (LocalName(style) == "style") nodes_[std::string(LocalAttribute(style, "name"))] = style;
    }
  }
}

OdtStyle OdtStyles::Of(absl::string_view name) const {
  // From the style up to what it is based on; a circle ends at the limit.
  constexpr size_t kMostAncestors = 16;
  std::vector<pugi::xml_node> chain;
  OdtStyle style;
  auto found = nodes_.find(std::string(name));
  style.code = name == "Preformatted_20_Text";
  while (found != nodes_.end() && chain.size() < kMostAncestors) {
    chain.push_back(found->second);
    const absl::string_view parent = LocalAttribute(found->second, "parent-style-name");
    style.code = style.code || parent == "Preformatted_20_Text";
    found = nodes_.find(std::string(parent));
  }
  for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
    Apply(LocalChild(*at, "text-properties"), &style);
  }
  return style;
}

}  // namespace annulus::client
