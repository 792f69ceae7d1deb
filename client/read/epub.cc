#include "client/read/epub.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/read/html.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Resolves a reference in the package file ("text/ch%201.xhtml") to the name of an archive entry.
std::string EntryName(absl::string_view folder, absl::string_view href) {
  std::string path;
  href = href.substr(0, href.find('#'));
  for (size_t i = 0; i < href.size(); ++i) {
    const bool escaped = href[i] == '%' && i + 2 < href.size() && HexDigit(href[i + 1]) >= 0 &&
                         HexDigit(href[i + 2]) >= 0;
    path +=
        escaped ? static_cast<char>(HexDigit(href[i + 1]) * 16 + HexDigit(href[i + 2])) : href[i];
    if (escaped) i += 2;
  }
  return (std::filesystem::path(std::string(folder)) / path).lexically_normal().string();
}

absl::StatusOr<std::unique_ptr<pugi::xml_document>> Part(absl::string_view what,
                                                         const ZipArchive& archive,
                                                         const std::string& name,
                                                         ReadBudget& budget) {
  const absl::StatusOr<std::string> text = archive.Read(name, budget);
  if (!text.ok()) return text.status();
  return ParseXml(what, *text, budget);
}

// Names of the entries that hold the book's pages, in reading order (the "spine" of the package).
absl::StatusOr<std::vector<std::string>> ReadingOrder(absl::string_view what,
                                                      const ZipArchive& archive,
                                                      ReadBudget& budget) {
  const auto container = Part(what, archive, "META-INF/container.xml", budget);
  if (!container.ok()) return container.status();
  const pugi::xml_node root =
      LocalChild(LocalChild((*container)->document_element(), "rootfiles"), "rootfile");
  const std::string package_name = EntryName("", LocalAttribute(root, "full-path"));
  const auto package = Part(what, archive, package_name, budget);
  if (!package.ok()) return package.status();
  const std::string folder = std::filesystem::path(package_name).parent_path().string();
  struct Item {
    std::string entry;
    bool contents = false;  // the page is the table of contents
  };
  std::map<std::string, Item> items;
  for (const pugi::xml_node& item :
       LocalChild((*package)->document_element(), "manifest").children()) {
    const std::vector<std::string> properties =
        absl::StrSplit(LocalAttribute(item, "properties"), ' ');
    items[std::string(LocalAttribute(item, "id"))] = {
        EntryName(folder, LocalAttribute(item, "href")),
        std::find(properties.begin(), properties.end(), "nav") != properties.end()};
  }
  std::vector<std::string> order;
  for (const pugi::xml_node& page :
       LocalChild((*package)->document_element(), "spine").children()) {
    const auto item = items.find(std::string(LocalAttribute(page, "idref")));
    if (item == items.end() || item->second.contents) continue;
    if (LocalAttribute(page, "linear") == "no") continue;
    order.push_back(item->second.entry);
  }
  return order;
}

}  // namespace

absl::StatusOr<std::string> ReadEpub(absl::string_view what, const ZipArchive& archive,
                                     ReadBudget& budget) {
  const absl::StatusOr<std::vector<std::string>> order = ReadingOrder(what, archive, budget);
  if (!order.ok()) return order.status();
  std::string encrypted;
  if (archive.Find("META-INF/encryption.xml").has_value()) {
    absl::StatusOr<std::string> list = archive.Read("META-INF/encryption.xml", budget);
    if (!list.ok()) return list.status();
    encrypted = *std::move(list);
  }
  std::string text;
  for (const std::string& entry : *order) {
    // encryption.xml alone proves nothing: a readable book lists its obfuscated fonts there.
    if (absl::StrContains(encrypted, entry)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " is protected against copying (DRM); its text cannot be read"));
    }
    absl::StatusOr<std::string> bytes = archive.Read(entry, budget);
    if (!bytes.ok()) return bytes.status();
    const absl::StatusOr<Utf8Text> page = ReadHtml(what, *std::move(bytes), budget);
    if (!page.ok()) return page.status();
    absl::StrAppend(&text, text.empty() || page->text.empty() ? "" : "\n", page->text);
  }
  return text;
}

}  // namespace annulus::client
