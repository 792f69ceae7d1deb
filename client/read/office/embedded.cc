#include "client/read/office/embedded.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/read/eml.h"
#include "client/read/encoding.h"
#include "client/read/kind.h"
#include "client/read/office/number_format.h"
#include "client/read/web/html.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

// Writes each paragraph (a:p) below a node that has text.
void WriteParagraphs(const pugi::xml_node& node, TextBuilder* text) {
  for (const pugi::xml_node& child : node.children()) {
    const absl::string_view name = LocalName(child);
    if (name == "t" && LocalName(node) != "pt") {
      text->Flow(child.child_value());
    } else {
      WriteParagraphs(child, text);
    }
    if (name == "p") text->EndLine();
  }
}

// The texts of the shapes that lie on a sheet.
void WriteTextBoxes(const pugi::xml_node& drawing, ReadContext& context, TextBuilder* text) {
  const auto write = [&](const pugi::xml_node& node) {
    if (LocalName(node) != "sp") return false;
    const pugi::xml_node properties = LocalChild(LocalChild(node, "nvSpPr"), "cNvPr");
    const pugi::xml_node body = LocalChild(node, "txBody");
    if (!IsTrue(LocalAttribute(properties, "hidden"))) {
      WriteParagraphs(body, text);
      text->EndParagraph();
    } else if (body) {
      ++context.left_out.hidden;
    }
    return false;
  };
  drawing.find_node(write);
}

// The cached values below c:cat, c:val and the like, by index, as the chart shows them.
std::map<int, std::string> PointsOf(const pugi::xml_node& node) {
  constexpr int kMostPoints = 10000;
  std::map<int, std::string> points;
  std::string format = "General";
  const auto add = [&](const pugi::xml_node& inner) {
    if (LocalName(inner) == "formatCode") format = inner.child_value();
    if (LocalName(inner) != "pt" || points.size() >= kMostPoints) return false;
    const std::string value = LocalChild(inner, "v").child_value();
    const bool is_number = LocalName(inner.parent()) == "numCache";
    double number = 0;
    points[LocalNumber(inner, "idx", 0)] =
        is_number && absl::SimpleAtod(value, &number) ? FormatNumber(number, format, false) : value;
    return false;
  };
  node.find_node(add);
  return points;
}

// One row of numbers or bars.
struct Series {
  std::string name;
  std::map<int, std::string> categories;
  std::map<int, std::string> values;
};

std::string FirstOf(const std::map<int, std::string>& points) {
  return points.empty() ? "" : points.begin()->second;
}

std::vector<Series> SeriesOf(const pugi::xml_node& plot) {
  constexpr size_t kMostSeries = 1000;
  std::vector<Series> all;
  const auto add = [&](const pugi::xml_node& node) {
    if (LocalName(node) != "ser" || all.size() >= kMostSeries) return false;
    Series series;
    series.name = FirstOf(PointsOf(LocalChild(node, "tx")));
    // Of bubbles and points, x and y.
    series.categories = PointsOf(LocalChild(node, LocalChild(node, "cat") ? "cat" : "xVal"));
    series.values = PointsOf(LocalChild(node, LocalChild(node, "val") ? "val" : "yVal"));
    all.push_back(std::move(series));
    return false;
  };
  plot.find_node(add);
  return all;
}

void WriteRow(const std::vector<std::string>& cells, TextBuilder* text) {
  text->BeginRow();
  for (const std::string& cell : cells) {
    text->BeginCell();
    text->Flow(cell);
    text->EndCell();
  }
  text->EndRow();
}

// A table: a row for each category, a column for each series. Series with categories of their own
// are tables of their own.
void WriteChart(const pugi::xml_node& root, TextBuilder* text) {
  const pugi::xml_node chart = LocalChild(root, "chart");
  WriteParagraphs(LocalChild(chart, "title"), text);
  const std::vector<Series> all = SeriesOf(LocalChild(chart, "plotArea"));
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    const std::map<int, std::string>& categories = all[begin].categories;
    std::map<int, std::vector<std::string>> rows;
    std::vector<std::string> head = {""};
    for (end = begin; end < all.size() && all[end].categories == categories; ++end) {
      head.push_back(all[end].name);
      for (const auto& [index, value] : all[end].values) {
        std::vector<std::string>& row = rows[index];
        const auto category = categories.find(index);
        if (row.empty()) row.push_back(category == categories.end() ? "" : category->second);
        row.resize(head.size());
        row.back() = value;
      }
    }
    text->EndParagraph();
    text->BeginTable();
    WriteRow(head, text);
    for (const auto& [index, row] : rows) WriteRow(row, text);
    text->EndTable();
    text->EndParagraph();
  }
}

// A document inside the document.
absl::Status WriteChunk(absl::string_view what, const std::string& name, std::string bytes,
                        ReadContext& context, TextBuilder* text) {
  const FileKind kind = DetectKind(bytes).kind;
  std::string read;
  if (kind == FileKind::kMail || absl::EndsWith(name, ".mht") || absl::EndsWith(name, ".mhtml")) {
    absl::StatusOr<Mail> page = ReadEml(what, bytes, context);
    if (!page.ok()) return page.status();
    read = std::move(page->text);
  } else if (kind == FileKind::kHtml) {
    absl::StatusOr<Utf8Text> page = ReadHtml(what, std::move(bytes), context);
    if (!page.ok()) return page.status();
    read = std::move(page->text);
  } else if (kind == FileKind::kText) {
    absl::StatusOr<Utf8Text> plain = ToUtf8(what, std::move(bytes), {});
    if (!plain.ok()) return plain.status();
    read = std::move(plain->text);
  } else {
    context.incomplete = true;
    context.remarks.push_back(absl::StrCat(what, ": the document inside it, ", name,
                                           ", is not read; save it as a file of its own"));
  }
  text->Verbatim(read);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteEmbedded(absl::string_view what, const ZipArchive& archive,
                           const Relationship& part, ReadContext& context, TextBuilder* text) {
  if (part.type == "aFChunk") {
    if (!archive.Find(part.part).has_value()) return absl::OkStatus();
    absl::StatusOr<std::string> bytes = archive.Read(part.part, context.budget);
    if (!bytes.ok()) return bytes.status();
    return WriteChunk(what, part.part, *std::move(bytes), context, text);
  }
  const bool known = part.type == "diagramData" || part.type == "chart" || part.type == "drawing";
  if (!known) return absl::OkStatus();
  const auto tree = OptionalPart(what, archive, part.part, context.budget);
  if (!tree.ok()) return tree.status();
  if (*tree == nullptr) return absl::OkStatus();
  const pugi::xml_node root = (*tree)->document_element();
  if (part.type == "chart") {
    WriteChart(root, text);
  } else if (part.type == "drawing") {
    WriteTextBoxes(root, context, text);
  } else {
    WriteParagraphs(LocalChild(root, "ptLst"), text);
  }
  return absl::OkStatus();
}

}  // namespace annulus::client
