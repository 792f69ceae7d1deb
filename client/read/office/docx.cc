#include "client/read/office/docx.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/read/office/docx_text.h"
#include "client/read/office/embedded.h"
#include "client/read/office/package.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

using XmlPart = std::unique_ptr<pugi::xml_document>;

// Whether a header has text: most that Word writes are empty, or hold a page number alone.
bool HasRuns(const pugi::xml_node& part) {
  const auto is_text = [](const pugi::xml_node& node) {
    return LocalName(node) == "t" && !absl::StripAsciiWhitespace(node.child_value()).empty();
  };
  return static_cast<bool>(part.find_node(is_text));
}

pugi::xml_node RootOf(const XmlPart& part) {
  return part == nullptr ? pugi::xml_node() : part->document_element();
}

// Gives the headers and footers to `text`, or counts them.
absl::Status TakeHeaders(absl::string_view what, const ZipArchive& archive,
                         const std::vector<Relationship>& relationships, ReadContext& context,
                         std::vector<XmlPart>* owned, DocxText* text) {
  for (const Relationship& relationship : relationships) {
    if (relationship.type != "header" && relationship.type != "footer") continue;
    absl::StatusOr<XmlPart> part = OptionalPart(what, archive, relationship.part, context.budget);
    if (!part.ok()) return part.status();
    if (!HasRuns(RootOf(*part))) continue;
    if (context.options.headers) {
      text->AddHeader(RootOf(*part), relationship.type);
      owned->push_back(*std::move(part));
    } else {
      ++context.left_out.headers;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadDocx(absl::string_view what, const ZipArchive& archive,
                                     const std::string& main, ReadContext& context) {
  const absl::StatusOr<XmlPart> body = OptionalPart(what, archive, main, context.budget);
  if (!body.ok()) return body.status();
  if (*body == nullptr) return archive.Read(main, context.budget).status();
  const auto relationships = RelationshipsOf(what, archive, main, context.budget);
  if (!relationships.ok()) return relationships.status();
  std::vector<XmlPart> owned;  // the trees that `text` refers to
  const auto root_of = [&](absl::string_view type) -> absl::StatusOr<pugi::xml_node> {
    std::string name = PartOfType(*relationships, type);
    // A document that has lost its relationships.
    if (name.empty()) name = absl::StrCat("word/", type, ".xml");
    absl::StatusOr<XmlPart> part = OptionalPart(what, archive, name, context.budget);
    if (!part.ok()) return part.status();
    owned.push_back(*std::move(part));
    return RootOf(owned.back());
  };
  const absl::StatusOr<pugi::xml_node> styles = root_of("styles");
  if (!styles.ok()) return styles.status();
  const absl::StatusOr<pugi::xml_node> numbering = root_of("numbering");
  if (!numbering.ok()) return numbering.status();
  absl::Status embedded;
  const auto write_embedded = [&](absl::string_view id, TextBuilder* to) {
    for (const Relationship& relationship : *relationships) {
      if (relationship.id != id || !embedded.ok()) continue;
      embedded = WriteEmbedded(what, archive, relationship, context, to);
    }
  };
  DocxText text(*styles, *numbering, context, write_embedded);
  for (const absl::string_view kind : {"footnote", "endnote", "comment"}) {
    const absl::StatusOr<pugi::xml_node> notes = root_of(absl::StrCat(kind, "s"));
    if (!notes.ok()) return notes.status();
    text.AddNotes(*notes, kind);
  }
  const absl::Status headers = TakeHeaders(what, archive, *relationships, context, &owned, &text);
  if (!headers.ok()) return headers;
  std::string all = text.Read((*body)->document_element());
  if (!embedded.ok()) return embedded;
  return all;
}

}  // namespace annulus::client
