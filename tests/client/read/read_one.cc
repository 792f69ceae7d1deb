#include "tests/client/read/read_one.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/client/read/make_zip.h"

namespace annulus::testing {

std::string ReadOne(const std::string& title, const std::string& bytes,
                    const client::ReadOptions& options) {
  const std::vector<client::FileText> texts = client::ReadBytes(title, bytes, options);
  EXPECT_EQ(texts.size(), 1u);
  if (texts.empty()) return "";
  return texts[0].text.ok() ? *texts[0].text : std::string(texts[0].text.status().message());
}

std::string RemarksOn(const std::string& title, const std::string& bytes,
                      const client::ReadOptions& options) {
  return absl::StrJoin(client::ReadBytes(title, bytes, options).at(0).remarks, "\n");
}

std::string MakeDocx(const std::string& body,
                     const std::vector<std::pair<std::string, std::string>>& parts) {
  std::vector<std::pair<std::string, std::string>> entries = {
      {"_rels/.rels",
       "<Relationships><Relationship Id='m' Type='http://x/officeDocument' Target='w/main.xml'/>"
       "</Relationships>"},
      {"w/main.xml", absl::StrCat("<w:document><w:body>", body, "</w:body></w:document>")}};
  std::string relationships;
  for (const auto& [name, bytes] : parts) {
    entries.emplace_back(absl::StrCat("w/", name), bytes);
    // "notes/footnotes.xml" has the type "footnotes"; "header1.xml" has "header".
    std::string type = name.substr(name.rfind('/') + 1);
    type.resize(type.find_first_of(".0123456789"));
    absl::StrAppend(&relationships, "<Relationship Id='", name, "' Type='http://x/", type,
                    "' Target='", name, "'/>");
  }
  entries.emplace_back("w/_rels/main.xml.rels",
                       absl::StrCat("<Relationships>", relationships, "</Relationships>"));
  return MakeZip(entries);
}

std::string MakeOdt(const std::string& styles, const std::string& text,
                    const std::vector<std::pair<std::string, std::string>>& parts) {
  std::vector<std::pair<std::string, std::string>> entries = {
      {"mimetype", "application/vnd.oasis.opendocument.text"},
      {"content.xml", absl::StrCat("<office:document-content><office:automatic-styles>", styles,
                                   "</office:automatic-styles><office:body><office:text>", text,
                                   "</office:text></office:body></office:document-content>")}};
  entries.insert(entries.end(), parts.begin(), parts.end());
  return MakeZip(entries);
}

std::string MakeEpub(const std::vector<std::pair<std::string, std::string>>& pages) {
  std::vector<std::pair<std::string, std::string>> entries = {
      {"META-INF/container.xml",
       "<container><rootfiles><rootfile full-path='o/p.opf'/></rootfiles></container>"}};
  std::string manifest, spine;
  for (const auto& [name, bytes] : pages) {
    entries.emplace_back(absl::StrCat("o/", name), bytes);
    absl::StrAppend(&manifest, "<item id='", name, "' href='", name,
                    "' media-type='application/xhtml+xml'/>");
    absl::StrAppend(&spine, "<itemref idref='", name, "'",
                    absl::StartsWith(name, "notes") ? " linear='no'" : "", "/>");
  }
  entries.emplace_back("o/p.opf", absl::StrCat("<package><manifest>", manifest,
                                               "</manifest><spine>", spine, "</spine></package>"));
  return MakeZip(entries);
}

}  // namespace annulus::testing
