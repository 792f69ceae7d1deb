#include "client/read/web/epub.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/read/web/html.h"
#include "client/read/web/page_survey.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

constexpr char kContainer[] = "META-INF/container.xml";

struct Item {
  std::string entry;
  std::string type;       // media type
  bool contents = false;  // the page is the table of contents
};

// The package of a book: its pages in reading order, and those beside it.
struct Package {
  std::vector<std::string> order;
  std::vector<std::string> beside;
  std::vector<std::string> sheets;
};

absl::StatusOr<std::unique_ptr<pugi::xml_document>> Part(absl::string_view what,
                                                         const ZipArchive& archive,
                                                         const std::string& name,
                                                         ReadBudget& budget) {
  const absl::StatusOr<std::string> text = archive.Read(name, budget);
  if (!text.ok()) return text.status();
  return ParseXml(what, *text, budget);
}

bool IsPage(absl::string_view type) {
  return type.empty() || absl::StrContains(type, "html") || absl::StrContains(type, "dtbook");
}

std::vector<std::pair<std::string, Item>> ReadManifest(const pugi::xml_node& package,
                                                       const std::string& package_name) {
  std::vector<std::pair<std::string, Item>> items;
  for (const pugi::xml_node& node : LocalChild(package, "manifest").children()) {
    if (LocalName(node) != "item") continue;
    const std::vector<std::string> properties =
        absl::StrSplit(LocalAttribute(node, "properties"), ' ');
    const std::string target = LinkTarget(package_name, LocalAttribute(node, "href"));
    items.push_back(
        {std::string(LocalAttribute(node, "id")),
         {target.substr(0, target.find('#')), std::string(LocalAttribute(node, "media-type")),
          std::find(properties.begin(), properties.end(), "nav") != properties.end()}});
  }
  return items;
}

Package ReadPackage(const pugi::xml_node& root, const std::string& name) {
  const std::vector<std::pair<std::string, Item>> manifest = ReadManifest(root, name);
  const std::map<std::string, Item> items(manifest.begin(), manifest.end());
  Package package;
  std::set<std::string> placed;
  for (const pugi::xml_node& page : LocalChild(root, "spine").children()) {
    const auto item = items.find(std::string(LocalAttribute(page, "idref")));
    if (item == items.end() || item->second.contents || !IsPage(item->second.type)) continue;
    if (!placed.insert(item->second.entry).second) continue;
    const bool is_beside = LocalAttribute(page, "linear") == "no";
    (is_beside ? package.beside : package.order).push_back(item->second.entry);
  }
  for (const auto& [id, item] : manifest) {
    if (absl::StrContains(item.type, "css")) package.sheets.push_back(item.entry);
    if (!IsPage(item.type) || item.type.empty() || item.contents) continue;
    if (placed.insert(item.entry).second) package.beside.push_back(item.entry);
  }
  // A book without a reading order.
  if (package.order.empty()) package.order = std::exchange(package.beside, {});
  return package;
}

// The first package that the container names.
std::string PackageName(const pugi::xml_node& container) {
  for (const pugi::xml_node& root : LocalChild(container, "rootfiles").children()) {
    const absl::string_view path = LocalAttribute(root, "full-path");
    if (LocalName(root) == "rootfile" && !path.empty()) return LinkTarget("", path);
  }
  return "";
}

class BookReader {
 public:
  BookReader(absl::string_view what, const ZipArchive& archive, ReadContext& context)
      : what_(what), archive_(archive), context_(context) {}

  absl::StatusOr<std::string> Read() {
    const auto container = Part(what_, archive_, kContainer, context_.budget);
    if (!container.ok()) return container.status();
    const std::string name = PackageName((*container)->document_element());
    const auto root = Part(what_, archive_, name, context_.budget);
    if (!root.ok()) return root.status();
    const Package package = ReadPackage((*root)->document_element(), name);
    if (archive_.Find("META-INF/encryption.xml").has_value()) {
      absl::StatusOr<std::string> list = archive_.Read("META-INF/encryption.xml", context_.budget);
      if (!list.ok()) return list.status();
      encrypted_ = *std::move(list);
    }
    ReadSheets(package.sheets);
    return ReadPages(package);
  }

 private:
  void ReadSheets(const std::vector<std::string>& sheets) {
    constexpr size_t kMostSheets = 32;
    for (size_t i = 0; i < std::min(sheets.size(), kMostSheets); ++i) {
      const absl::StatusOr<std::string> text = archive_.Read(sheets[i], context_.budget);
      if (text.ok()) style_.Add(*text);
    }
  }

  absl::StatusOr<std::string> ReadPages(const Package& package) {
    for (const std::string& entry : package.order) {
      const absl::Status added = AddPage(entry);
      if (!added.ok()) return added;
    }
    // A cited page may cite another one, so go on until nothing more is cited.
    std::vector<std::string> left = package.beside;
    constexpr int kMostRounds = 100;
    bool more = true;
    for (int round = 0; more && round < kMostRounds; ++round) {
      more = false;
      for (std::string& entry : left) {
        if (entry.empty() || links_.cited.count(entry) == 0) continue;
        const absl::Status added = AddPage(std::exchange(entry, ""));
        if (!added.ok()) return added;
        more = true;
      }
    }
    if (pages_ == protected_ && pages_ > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(what_, " is protected against copying (DRM); its text cannot be read"));
    }
    if (pages_ == bad_ && pages_ > 0) return first_failure_;
    const auto beside = std::count_if(left.begin(), left.end(),
                                      [](const std::string& entry) { return !entry.empty(); });
    if (beside > 0) {
      context_.remarks.push_back(absl::StrCat(what_, ": left out ", beside,
                                              beside == 1 ? " page" : " pages",
                                              " outside the reading order that no page links to"));
    }
    return std::move(text_);
  }

  // Adds the text of a page, or a remark. An error means that a limit of the whole book is reached.
  absl::Status AddPage(const std::string& entry) {
    ++pages_;
    const absl::StatusOr<std::string> page = ReadPage(entry);
    if (page.ok()) {
      absl::StrAppend(&text_, text_.empty() || page->empty() ? "" : "\n", *page);
      return absl::OkStatus();
    }
    if (context_.budget.bytes_left() < 0 || context_.budget.TimeIsUp()) return page.status();
    if (bad_++ == 0) first_failure_ = page.status();
    context_.incomplete = true;
    absl::StrAppend(&text_, text_.empty() ? "" : "\n", "[page ", entry, " could not be read]\n");
    context_.remarks.push_back(
        absl::StrCat(what_, ": its page ", entry, " could not be read: ", page.status().message()));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadPage(const std::string& entry) {
    // encryption.xml alone proves nothing: a readable book lists its obfuscated fonts there.
    if (absl::StrContains(encrypted_, entry)) {
      ++protected_;
      return absl::InvalidArgumentError("it is protected against copying (DRM)");
    }
    absl::StatusOr<std::string> bytes = archive_.Read(entry, context_.budget);
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<Utf8Text> page =
        ReadHtml(what_, *std::move(bytes), context_,
                 {.xhtml = true, .entry = entry, .sheets = &style_, .links = &links_});
    if (!page.ok()) return page.status();
    return std::move(page->text);
  }

  const absl::string_view what_;
  const ZipArchive& archive_;
  ReadContext& context_;
  std::string encrypted_;
  PageStyle style_;
  BookLinks links_;
  std::string text_;
  int pages_ = 0;
  int bad_ = 0;
  int protected_ = 0;
  absl::Status first_failure_;
};

}  // namespace

bool IsEpub(const ZipArchive& archive) { return archive.Find(kContainer).has_value(); }

absl::StatusOr<std::string> ReadEpub(absl::string_view what, const ZipArchive& archive,
                                     ReadContext& context) {
  return BookReader(what, archive, context).Read();
}

}  // namespace annulus::client
