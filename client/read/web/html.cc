#include "client/read/web/html.h"

#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/read/kind.h"
#include "client/read/web/page_text.h"
#include "client/read/web/page_tree.h"

namespace annulus::client {
namespace {

// Name of the encoding that a page declares at its beginning; empty if it declares none.
std::string DeclaredEncoding(absl::string_view page) {
  const std::string head = absl::AsciiStrToLower(page.substr(0, kDetectBytes));
  for (const std::string key : {"charset=", "encoding="}) {
    const size_t at = head.find(key);
    if (at == std::string::npos) continue;
    absl::string_view rest = absl::string_view(head).substr(at + key.size());
    absl::ConsumePrefix(&rest, "\"") || absl::ConsumePrefix(&rest, "'");
    const std::string name(rest.substr(0, rest.find_first_of("\"' />;?")));
    // Browsers treat Latin-1 as Windows-1252.
    return name == "iso-8859-1" || name == "latin1" ? "windows-1252" : name;
  }
  return "";
}

void AddSheets(const pugi::xml_node& root, PageStyle* style) {
  WalkPage(
      root,
      [&](const pugi::xml_node& node) {
        if (PageName(node) != "style") return true;
        const absl::string_view media = node.attribute("media").value();
        if (media.empty() || media == "all" || media == "screen") style->Add(node.child_value());
        return false;
      },
      [](const pugi::xml_node&) {});
}

}  // namespace

absl::StatusOr<Utf8Text> ReadHtml(absl::string_view what, std::string bytes, ReadContext& context,
                                  const PageSource& source) {
  const ReadLimits& limits = context.budget.limits();
  if (static_cast<int64_t>(bytes.size()) > limits.html_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " is a page of more than ", limits.html_bytes >> 20,
                     " MiB; split it or convert it to plain text first"));
  }
  const std::string declared = DeclaredEncoding(bytes);
  absl::StatusOr<Utf8Text> page =
      ToUtf8(what, std::move(bytes), {.declared = declared, .forced = context.options.encoding});
  if (!page.ok()) return page;
  const auto tree = ParsePage(what, page->text, source.xhtml, context.budget);
  if (!tree.ok()) return tree.status();
  const pugi::xml_node root = (*tree)->document_element();
  BookLinks own_links;
  PageSurvey survey(root, source.entry, source.links == nullptr ? &own_links : source.links);
  if (source.sheets != nullptr) survey.style() = *source.sheets;
  AddSheets(root, &survey.style());
  PageText text(survey, context.options, /*with_navigation=*/false);
  page->text = text.Read(root);
  if (page->text.empty() && text.left_navigation()) {
    // A page of nothing but links, such as a table of contents.
    page->text = PageText(survey, context.options, /*with_navigation=*/true).Read(root);
  }
  context.left_out.hidden += text.left_out().hidden;
  context.left_out.alts += text.left_out().alts;
  return page;
}

}  // namespace annulus::client
