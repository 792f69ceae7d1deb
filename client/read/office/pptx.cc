#include "client/read/office/pptx.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/read/math_text.h"
#include "client/read/office/embedded.h"
#include "client/read/office/package.h"
#include "client/read/office/symbol_fonts.h"
#include "client/read/text_builder.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

// Kind of the placeholder that a shape fills: "title", "body" (also of lists), "sldNum"; empty:
// none.
std::string Placeholder(const pugi::xml_node& shape) {
  for (const pugi::xml_node& child : shape.children()) {
    if (!absl::StartsWith(LocalName(child), "nv")) continue;
    const pugi::xml_node placeholder = LocalChild(LocalChild(child, "nvPr"), "ph");
    if (!placeholder) continue;
    const absl::string_view type = LocalAttribute(placeholder, "type");
    return type.empty() || type == "obj" ? "body" : std::string(type);
  }
  return "";
}

// Writes the shapes of slides and notes.
class SlideText {
 public:
  SlideText(TextBuilder* text, ReadContext* context) : text_(*text), context_(*context) {}

  // Reads the shapes below `node`; of notes only those with the notes' text.
  void Read(const pugi::xml_node& node, bool of_notes) {
    of_notes_ = of_notes;
    Descend(node);
  }

 private:
  void Descend(const pugi::xml_node& parent) {
    for (const pugi::xml_node& child : parent.children()) Visit(child);
  }

  void Visit(const pugi::xml_node& node) {
    const absl::string_view name = LocalName(node);
    if (name == "sp") {
      Shape(node);
    } else if (name == "p") {
      Paragraph(node);
    } else if (name == "tbl") {
      text_.EndParagraph();
      text_.BeginTable();
      Descend(node);
      text_.EndTable();
      text_.EndParagraph();
    } else if (name == "tr") {
      text_.BeginRow();
      Descend(node);
      text_.EndRow();
    } else if (name == "tc") {
      // Cells that another one spans stand for themselves, so only rows need a hint.
      text_.BeginCell({.continues = IsTrue(LocalAttribute(node, "vMerge"))});
      Descend(node);
      text_.EndCell();
    } else if (name == "cNvPr") {
      Description(node);
    } else if (name != "Fallback" && name != "extLst") {
      Descend(node);
    }
  }

  void Description(const pugi::xml_node& node) {
    const absl::string_view alt = absl::StripAsciiWhitespace(LocalAttribute(node, "descr"));
    if (alt.empty() || of_notes_) return;
    if (!context_.options.alt) {
      ++context_.left_out.alts;
      return;
    }
    text_.Flow(absl::StrCat("[picture: ", alt, "]"));
    text_.EndParagraph();
  }

  void Shape(const pugi::xml_node& shape) {
    const std::string placeholder = Placeholder(shape);
    if (of_notes_ && placeholder != "body") return;
    // Numbers, dates and footers are the same on every slide.
    for (const char* furniture : {"sldNum", "dt", "ftr", "hdr"}) {
      if (placeholder == furniture) return;
    }
    for (const pugi::xml_node& child : shape.children()) {
      if (IsTrue(LocalAttribute(LocalChild(child, "cNvPr"), "hidden"))) {
        ++context_.left_out.hidden;
        return;
      }
    }
    const bool is_title = placeholder == "title" || placeholder == "ctrTitle";
    if (is_title) text_.Prefix("# ");
    items_ = placeholder == "body" && !of_notes_;
    Descend(shape);
    items_ = false;
    if (is_title) text_.Prefix("");
    for (; lists_ > 0; --lists_) text_.EndList();
    text_.EndParagraph();
  }

  void Paragraph(const pugi::xml_node& paragraph) {
    const pugi::xml_node properties = LocalChild(paragraph, "pPr");
    const bool numbered = static_cast<bool>(LocalChild(properties, "buAutoNum"));
    const bool marked = numbered || LocalChild(properties, "buChar");
    if ((items_ || marked) && !LocalChild(properties, "buNone")) {
      const int depth = std::clamp(LocalNumber(properties, "lvl", 0), 0, 8) + 1;
      for (; lists_ < depth; ++lists_) text_.BeginList();
      for (; lists_ > depth; --lists_) text_.EndList();
      number_ = numbered ? number_ + 1 : 0;
      text_.BeginItem(numbered ? absl::StrCat(number_, ". ") : "- ");
    } else {
      for (; lists_ > 0; --lists_) text_.EndList();
    }
    for (const pugi::xml_node& child : paragraph.children()) Inline(child);
    if (lists_ > 0) text_.Prefix("");
    text_.EndLine();
  }

  void Inline(const pugi::xml_node& node) {
    const absl::string_view name = LocalName(node);
    if (name == "r" || name == "fld") {
      const pugi::xml_node properties = LocalChild(node, "rPr");
      const int baseline = LocalNumber(properties, "baseline", 0);
      const Script script = baseline > 0   ? Script::kSuper
                            : baseline < 0 ? Script::kSub
                                           : Script::kNone;
      absl::string_view font = LocalAttribute(LocalChild(properties, "sym"), "typeface");
      if (font.empty()) font = LocalAttribute(LocalChild(properties, "latin"), "typeface");
      const absl::string_view strike = LocalAttribute(properties, "strike");
      const bool struck = !strike.empty() && strike != "noStrike";
      if (struck) text_.BeginStruck();
      if (script != Script::kNone) text_.BeginScript(script);
      text_.Flow(WithoutPrivateSymbols(font, LocalChild(node, "t").child_value()));
      if (script != Script::kNone) text_.EndScript();
      if (struck) text_.EndStruck();
    } else if (name == "br") {
      text_.EndLine();
    } else if (name == "oMath") {
      text_.Apart(MathText(node));
    } else if (name != "pPr" && name != "endParaRPr" && name != "Fallback") {
      for (const pugi::xml_node& child : node.children()) Inline(child);
    }
  }

  TextBuilder& text_;
  ReadContext& context_;
  bool of_notes_ = false;
  bool items_ = false;  // paragraphs are items of a list
  int lists_ = 0;
  int number_ = 0;
};

class PresentationReader {
 public:
  PresentationReader(absl::string_view what, const ZipArchive& archive, ReadContext& context)
      : what_(what), archive_(archive), context_(context) {}

  absl::StatusOr<std::string> Read(const std::string& main) {
    const auto presentation = OptionalPart(what_, archive_, main, context_.budget);
    if (!presentation.ok()) return presentation.status();
    if (*presentation == nullptr) return archive_.Read(main, context_.budget).status();
    const auto relationships = RelationshipsOf(what_, archive_, main, context_.budget);
    if (!relationships.ok()) return relationships.status();
    int number = 0;
    for (const pugi::xml_node& slide :
         LocalChild((*presentation)->document_element(), "sldIdLst").children()) {
      if (LocalName(slide) != "sldId") continue;
      const absl::Status read = ReadSlide(SlidePart(slide, *relationships), ++number);
      if (!read.ok()) return read;
    }
    return std::move(all_);
  }

 private:
  // A slide has an id of its own, and with a prefix that of its relationship.
  static std::string SlidePart(const pugi::xml_node& slide,
                               const std::vector<Relationship>& relationships) {
    for (const pugi::xml_attribute& attribute : slide.attributes()) {
      const std::string part = PartOfId(relationships, attribute.value());
      if (absl::EndsWith(attribute.name(), ":id") && !part.empty()) return part;
    }
    return "";
  }

  absl::Status ReadSlide(const std::string& name, int number) {
    const auto slide = OptionalPart(what_, archive_, name, context_.budget);
    if (!slide.ok()) return slide.status();
    if (*slide == nullptr) return absl::OkStatus();
    const pugi::xml_node root = (*slide)->document_element();
    if (LocalAttribute(root, "show") == "0" || LocalAttribute(root, "show") == "false") {
      ++context_.left_out.hidden;
      return absl::OkStatus();
    }
    const auto relationships = RelationshipsOf(what_, archive_, name, context_.budget);
    if (!relationships.ok()) return relationships.status();
    TextBuilder text;
    SlideText(&text, &context_).Read(LocalChild(root, "cSld"), /*of_notes=*/false);
    for (const Relationship& relationship : *relationships) {
      const absl::Status read = ReadBeside(relationship, &text);
      if (!read.ok()) return read;
    }
    const std::string body = text.Take();
    absl::StrAppend(&all_, all_.empty() ? "" : "\n", "[slide ", number, "]\n", body);
    return absl::OkStatus();
  }

  // Notes, diagrams, charts and comments are parts of their own.
  absl::Status ReadBeside(const Relationship& relationship, TextBuilder* text) {
    const bool is_notes = relationship.type == "notesSlide";
    const bool is_comments = relationship.type == "comments";
    if (!is_notes && !is_comments) {
      text->EndParagraph();
      const absl::Status written = WriteEmbedded(what_, archive_, relationship, context_, text);
      text->EndParagraph();
      return written;
    }
    const auto part = OptionalPart(what_, archive_, relationship.part, context_.budget);
    if (!part.ok()) return part.status();
    if (*part == nullptr) return absl::OkStatus();
    const pugi::xml_node root = (*part)->document_element();
    if (is_notes) {
      text->EndParagraph();
      text->Prefix("[notes] ");
      SlideText(text, &context_).Read(LocalChild(root, "cSld"), /*of_notes=*/true);
      text->Prefix("");
      text->EndParagraph();
      return absl::OkStatus();
    }
    for (const pugi::xml_node& comment : root.children()) {
      if (!context_.options.comments) {
        ++context_.left_out.comments;
        continue;
      }
      text->EndLine();
      text->Prefix("[comment] ");
      text->Flow(LocalChild(comment, "text").child_value());
      text->Prefix("");
    }
    return absl::OkStatus();
  }

  const absl::string_view what_;
  const ZipArchive& archive_;
  ReadContext& context_;
  std::string all_;
};

}  // namespace

absl::StatusOr<std::string> ReadPptx(absl::string_view what, const ZipArchive& archive,
                                     const std::string& main, ReadContext& context) {
  return PresentationReader(what, archive, context).Read(main);
}

}  // namespace annulus::client
