#include "client/read/office/odt.h"

#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/read/office/odt_text.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

// The content of an embedded object; null if it cannot be read.
std::unique_ptr<pugi::xml_document> ObjectAt(absl::string_view what, const ZipArchive& archive,
                                             absl::string_view href, ReadBudget& budget) {
  const std::filesystem::path folder = std::filesystem::path(std::string(href)).lexically_normal();
  const std::string name = (folder / "content.xml").string();
  if (!archive.Find(name).has_value()) return nullptr;
  const absl::StatusOr<std::string> text = archive.Read(name, budget);
  if (!text.ok()) return nullptr;
  auto part = ParseXml(what, *text, budget);
  return part.ok() ? *std::move(part) : nullptr;
}

}  // namespace

absl::StatusOr<std::string> ReadOdt(absl::string_view what, const ZipArchive& archive,
                                    ReadContext& context) {
  ReadBudget& budget = context.budget;
  // In an encrypted document the archive itself is not encrypted, only its parts are.
  if (archive.Find("META-INF/manifest.xml").has_value()) {
    const absl::StatusOr<std::string> manifest = archive.Read("META-INF/manifest.xml", budget);
    if (!manifest.ok()) return manifest.status();
    if (absl::StrContains(*manifest, "encryption-data")) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " is encrypted; save it without a password first"));
    }
  }
  const absl::StatusOr<std::string> text = archive.Read("content.xml", budget);
  if (!text.ok()) return text.status();
  const auto content = ParseXml(what, *text, budget);
  if (!content.ok()) return content.status();
  OdtText reader(context,
                 [&](absl::string_view href) { return ObjectAt(what, archive, href, budget); });
  std::unique_ptr<pugi::xml_document> styles;  // `reader` refers to it
  if (archive.Find("styles.xml").has_value()) {
    const absl::StatusOr<std::string> styles_text = archive.Read("styles.xml", budget);
    if (!styles_text.ok()) return styles_text.status();
    auto parsed = ParseXml(what, *styles_text, budget);
    if (!parsed.ok()) return parsed.status();
    styles = *std::move(parsed);
    reader.AddStyles(styles->document_element());
  }
  reader.AddStyles((*content)->document_element());
  if (styles != nullptr) reader.AddHeaders(styles->document_element());
  return reader.Read(LocalChild((*content)->document_element(), "body"));
}

}  // namespace annulus::client
