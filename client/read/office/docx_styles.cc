#include "client/read/office/docx_styles.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

// Takes the list from the properties of a style or of a paragraph, if they name one.
void ReadList(const pugi::xml_node& properties, DocxParagraphStyle* style) {
  const pugi::xml_node numbering = LocalChild(properties, "numPr");
  const absl::string_view list = LocalAttribute(LocalChild(numbering, "numId"), "val");
  if (list.empty()) return;
  style->list = list == "0" ? "" : std::string(list);  // 0 cancels the list of the style
  style->item = style->heading == 0 && list != "0";
  if (!absl::SimpleAtoi(LocalAttribute(LocalChild(numbering, "ilvl"), "val"), &style->level)) {
    style->level = 0;
  }
}

void ReadRun(const pugi::xml_node& properties, DocxRunStyle* style) {
  const pugi::xml_node align = LocalChild(properties, "vertAlign");
  if (align) {
    const absl::string_view value = LocalAttribute(align, "val");
    style->script = value == "superscript" ? Script::kSuper
                    : value == "subscript" ? Script::kSub
                                           : Script::kNone;
  }
  constexpr int kRaised = 4;  // half points, more than letters are moved to align them
  const int position = LocalNumber(LocalChild(properties, "position"), "val", 0);
  if (!align && std::abs(position) >= kRaised) {
    style->script = position > 0 ? Script::kSuper : Script::kSub;
  }
  for (const char* name : {"strike", "dstrike"}) {
    if (const pugi::xml_node strike = LocalChild(properties, name); strike) {
      style->struck = DocxSwitch(strike);
    }
  }
  if (const pugi::xml_node vanish = LocalChild(properties, "vanish"); vanish) {
    style->hidden = DocxSwitch(vanish);
  }
  if (const pugi::xml_node fonts = LocalChild(properties, "rFonts"); fonts) {
    style->font = std::string(LocalAttribute(fonts, "ascii"));
  }
}

void ReadParagraph(const pugi::xml_node& style, DocxParagraphStyle* result) {
  const std::string name = absl::AsciiStrToLower(LocalAttribute(LocalChild(style, "name"), "val"));
  const pugi::xml_node properties = LocalChild(style, "pPr");
  int level = 0;
  absl::string_view rest = name;
  if (name == "title") {
    result->heading = 1;
  } else if (absl::ConsumePrefix(&rest, "heading ") && absl::SimpleAtoi(rest, &level)) {
    result->heading = std::clamp(level, 1, 6);
  } else if (absl::SimpleAtoi(LocalAttribute(LocalChild(properties, "outlineLvl"), "val"),
                              &level)) {
    constexpr int kBodyText = 9;
    result->heading = level < 0 || level >= kBodyText ? 0 : std::min(level + 1, 6);
  }
  for (const char* code :
       {"html preformatted", "source code", "plain text", "macro", "code", "preformatted text"}) {
    result->code = result->code || name == code;
  }
  const bool item = absl::StartsWith(name, "list bullet") || absl::StartsWith(name, "list number");
  ReadList(properties, result);
  result->item = item || result->item;
}

}  // namespace

bool DocxSwitch(const pugi::xml_node& property) {
  if (!property) return false;
  const absl::string_view value = LocalAttribute(property, "val");
  return value != "0" && value != "false" && value != "off";
}

DocxStyles::DocxStyles(const pugi::xml_node& root) {
  std::map<std::string, pugi::xml_node> nodes;
  for (const pugi::xml_node& style : root.children()) {
    if (LocalName(style) == "style") nodes[std::string(LocalAttribute(style, "styleId"))] = style;
  }
  for (const auto& [id, node] : nodes) {
    // From the style up to what it is based on; a circle ends at the limit.
    constexpr size_t kMostAncestors = 16;
    std::vector<pugi::xml_node> chain = {node};
    while (chain.size() < kMostAncestors) {
      const auto base =
          nodes.find(std::string(LocalAttribute(LocalChild(chain.back(), "basedOn"), "val")));
      if (base == nodes.end()) break;
      chain.push_back(base->second);
    }
    DocxStyle style;
    for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
      ReadParagraph(*at, &style.paragraph);
      ReadRun(LocalChild(*at, "rPr"), &style.run);
    }
    styles_[id] = std::move(style);
  }
}

DocxStyle DocxStyles::OfParagraph(const pugi::xml_node& paragraph) const {
  const pugi::xml_node properties = LocalChild(paragraph, "pPr");
  const auto found =
      styles_.find(std::string(LocalAttribute(LocalChild(properties, "pStyle"), "val")));
  DocxStyle style = found == styles_.end() ? DocxStyle{} : found->second;
  ReadList(properties, &style.paragraph);
  return style;
}

DocxRunStyle DocxStyles::OfRun(const pugi::xml_node& run, const DocxRunStyle& paragraph) const {
  DocxRunStyle style = paragraph;
  const pugi::xml_node properties = LocalChild(run, "rPr");
  if (!properties) return style;
  const auto found =
      styles_.find(std::string(LocalAttribute(LocalChild(properties, "rStyle"), "val")));
  if (found != styles_.end()) {
    const DocxRunStyle& named = found->second.run;
    if (named.script != Script::kNone) style.script = named.script;
    style.hidden = style.hidden || named.hidden;
    style.struck = style.struck || named.struck;
    if (!named.font.empty()) style.font = named.font;
  }
  ReadRun(properties, &style);
  return style;
}

}  // namespace annulus::client
