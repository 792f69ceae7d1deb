#ifndef ANNULUS_CLIENT_READ_OFFICE_PACKAGE_H_
#define ANNULUS_CLIENT_READ_OFFICE_PACKAGE_H_

#include <memory>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/limits.h"

namespace annulus::client {

// Parts of Office Open XML packages (docx, pptx, xlsx) find each other by relationships, not by
// their names.

struct Relationship {
  std::string id;
  std::string type;  // the last word of its address: "officeDocument", "styles", "slide"
  std::string part;  // name of the entry
};

// The relationships of a part; those of the package if `part` is empty. Leaves out those that lead
// out of the package. Empty if the part has none.
absl::StatusOr<std::vector<Relationship>> RelationshipsOf(absl::string_view what,
                                                          const ZipArchive& archive,
                                                          const std::string& part,
                                                          ReadBudget& budget);

// The main part of the package; empty if the archive is no such package.
absl::StatusOr<std::string> MainPart(absl::string_view what, const ZipArchive& archive,
                                     ReadBudget& budget);

// Parses a part. Null if `name` is empty or the archive does not have it.
absl::StatusOr<std::unique_ptr<pugi::xml_document>> OptionalPart(absl::string_view what,
                                                                 const ZipArchive& archive,
                                                                 const std::string& name,
                                                                 ReadBudget& budget);

// The first part of that type; empty if there is none.
std::string PartOfType(const std::vector<Relationship>& relationships, absl::string_view type);
// The part with that id; empty if there is none.
std::string PartOfId(const std::vector<Relationship>& relationships, absl::string_view id);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_PACKAGE_H_
