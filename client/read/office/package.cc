#include "client/read/office/package.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/read/xml.h"

namespace annulus::client {

absl::StatusOr<std::unique_ptr<pugi::xml_document>> OptionalPart(absl::string_view what,
                                                                 const ZipArchive& archive,
                                                                 const std::string& name,
                                                                 ReadBudget& budget) {
  if (name.empty() || !archive.Find(name).has_value()) return nullptr;
  const absl::StatusOr<std::string> text = archive.Read(name, budget);
  if (!text.ok()) return text.status();
  return ParseXml(what, *text, budget);
}

absl::StatusOr<std::vector<Relationship>> RelationshipsOf(absl::string_view what,
                                                          const ZipArchive& archive,
                                                          const std::string& part,
                                                          ReadBudget& budget) {
  const std::filesystem::path path(part);
  const std::filesystem::path folder = path.parent_path();
  const std::string name =
      (folder / "_rels" / absl::StrCat(path.filename().string(), ".rels")).string();
  const auto list = OptionalPart(what, archive, name, budget);
  if (!list.ok()) return list.status();
  std::vector<Relationship> relationships;
  if (*list == nullptr) return relationships;
  for (const pugi::xml_node& node : (*list)->document_element().children()) {
    if (LocalName(node) != "Relationship") continue;
    if (LocalAttribute(node, "TargetMode") == "External") continue;
    const absl::string_view type = LocalAttribute(node, "Type");
    const std::string target(LocalAttribute(node, "Target"));
    const std::filesystem::path whole = target.empty() || target[0] != '/'
                                            ? folder / target
                                            : std::filesystem::path(target.substr(1));
    relationships.push_back({std::string(LocalAttribute(node, "Id")),
                             std::string(type.substr(type.rfind('/') + 1)),
                             whole.lexically_normal().string()});
  }
  return relationships;
}

std::string PartOfType(const std::vector<Relationship>& relationships, absl::string_view type) {
  for (const Relationship& relationship : relationships) {
    if (relationship.type == type) return relationship.part;
  }
  return "";
}

std::string PartOfId(const std::vector<Relationship>& relationships, absl::string_view id) {
  for (const Relationship& relationship : relationships) {
    if (relationship.id == id) return relationship.part;
  }
  return "";
}

absl::StatusOr<std::string> MainPart(absl::string_view what, const ZipArchive& archive,
                                     ReadBudget& budget) {
  const auto relationships = RelationshipsOf(what, archive, "", budget);
  if (!relationships.ok()) return relationships.status();
  std::string main = PartOfType(*relationships, "officeDocument");
  if (!main.empty()) return main;
  // A package that has lost its relationships.
  for (const char* usual : {"word/document.xml", "ppt/presentation.xml", "xl/workbook.xml"}) {
    if (archive.Find(usual).has_value()) return std::string(usual);
  }
  return std::string();
}

}  // namespace annulus::client
