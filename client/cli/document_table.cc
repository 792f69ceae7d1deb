#include "client/cli/document_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/format/table.h"
#include "client/format/text.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

// Shortens a name that is a hash, whose 64 digits a terminal has no room for, to a pattern that
// only this document matches; returns it whole if another document has the same beginning.
std::string ShortName(const std::string& name, std::span<const v1::Document> documents) {
  constexpr size_t kShort = 7 + 8;  // "sha256-" and digits
  constexpr size_t kWhole = 7 + 64;
  if (!absl::StartsWith(name, "sha256-") || name.size() < kWhole) return name;
  const std::string start = name.substr(0, kShort);
  const auto same = std::count_if(documents.begin(), documents.end(), [&](const auto& other) {
    return absl::StartsWith(other.name(), start);
  });
  return same > 1 ? name : absl::StrCat(start, "*");
}

}  // namespace

std::string LastUsed(const v1::Document& document) {
  return document.has_last_used() ? absl::StrCat(FormatDuration(document.last_used()), " ago")
                                  : "never";
}

std::string PinText(const v1::Document& document) {
  std::string text = document.pinned() ? "pinned" : "";
  if (document.has_expires_in()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", FormatDuration(document.expires_in()),
                    " left");
  }
  return text.empty() ? "-" : text;
}

std::string ShownTitle(const v1::Document& document) {
  return document.title().empty() ? "-" : OnOneLine(document.title());
}

std::string DocumentTable(std::span<const v1::Document> documents, int columns) {
  using Align = Table::Align;
  const bool whole = columns == 0;
  const bool in_host = whole || std::any_of(documents.begin(), documents.end(),
                                            [](const auto& one) { return one.host_tokens() > 0; });
  const bool on_disk = whole || std::any_of(documents.begin(), documents.end(),
                                            [](const auto& one) { return one.disk_tokens() > 0; });
  const bool kept = whole || std::any_of(documents.begin(), documents.end(),
                                         [](const auto& one) { return PinText(one) != "-"; });
  std::vector<Table::Column> header = {
      {"TITLE"}, {"SIZE", Align::kRight}, {"TOKENS", Align::kRight}, {"MEMORY", Align::kRight}};
  if (in_host) header.push_back({"HOST", Align::kRight});
  if (on_disk) header.push_back({"DISK", Align::kRight});
  if (whole) header.push_back({"AGE", Align::kRight});
  header.push_back({"USED", Align::kRight});
  if (kept) header.push_back({"KEPT"});
  header.push_back({"NAME"});
  Table table(header);
  for (const v1::Document& document : documents) {
    std::vector<std::string> cells = {ShownTitle(document), FormatBytes(document.size_bytes()),
                                      FormatCount(document.token_count()),
                                      FormatCount(document.memory_tokens())};
    if (in_host) cells.push_back(FormatCount(document.host_tokens()));
    if (on_disk) cells.push_back(FormatCount(document.disk_tokens()));
    if (whole) cells.push_back(FormatDuration(document.age()));
    cells.push_back(LastUsed(document));
    if (kept) cells.push_back(PinText(document));
    cells.push_back(whole ? document.name() : ShortName(document.name(), documents));
    table.AddRow(std::move(cells));
  }
  return table.Render(columns);
}

}  // namespace annulus::client
