#ifndef ANNULUS_CLIENT_READ_XML_H_
#define ANNULUS_CLIENT_READ_XML_H_

#include <memory>
#include <pugixml.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/limits.h"

namespace annulus {

// Parses one XML part of a document. Entities that the part defines are never expanded. The depth
// and the number of tags are limited, so the tree can be walked by recursion. `what` names the
// document in messages.
absl::StatusOr<std::unique_ptr<pugi::xml_document>> ParseXml(absl::string_view what,
                                                             absl::string_view text,
                                                             const ReadBudget& budget);

// "p" for the element w:p: its name without the prefix of its namespace.
absl::string_view LocalName(const pugi::xml_node& node);

// Value of the attribute of that name without a prefix; empty if there is none.
absl::string_view LocalAttribute(const pugi::xml_node& node, absl::string_view name);

// The first child of that name without a prefix; null if there is none.
pugi::xml_node LocalChild(const pugi::xml_node& node, absl::string_view name);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_XML_H_
