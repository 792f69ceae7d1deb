#ifndef ANNULUS_CLIENT_READ_XML_H_
#define ANNULUS_CLIENT_READ_XML_H_

#include <memory>
#include <pugixml.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/limits.h"

namespace annulus::client {

enum class XmlUse {
  kPart,  // a part of a document, which may be in any encoding of XML
  kPage,  // a page, which has been converted to UTF-8 and may be deep
};

// Parses one XML part of a document. Never expands entities that the part defines. Limits the
// depth of parts, so that callers may walk the tree recursively, and the number of tags and
// attributes. INVALID_ARGUMENT if the part is not XML, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a
// limit. `what` names the document in messages.
absl::StatusOr<std::unique_ptr<pugi::xml_document>> ParseXml(absl::string_view what,
                                                             absl::string_view text,
                                                             const ReadBudget& budget,
                                                             XmlUse use = XmlUse::kPart);

// The name of an element without its namespace prefix: "p" for w:p.
absl::string_view LocalName(const pugi::xml_node& node);

// Value of the attribute with that name, ignoring namespace prefixes; empty if there is none.
absl::string_view LocalAttribute(const pugi::xml_node& node, absl::string_view name);

// The same for a whole number; `otherwise` if the attribute is absent or no number.
int LocalNumber(const pugi::xml_node& node, absl::string_view name, int otherwise);

// Whether the value of an attribute that is a switch means yes.
inline bool IsTrue(absl::string_view value) { return value == "1" || value == "true"; }

// The first child with that name, ignoring namespace prefixes; null if there is none.
pugi::xml_node LocalChild(const pugi::xml_node& node, absl::string_view name);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_XML_H_
