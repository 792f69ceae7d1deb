#include "client/read/office/xlsx.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/read/office/embedded.h"
#include "client/read/office/number_format.h"
#include "client/read/office/package.h"
#include "client/read/text_builder.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

constexpr int64_t kMostCells = 1000000;
constexpr int kMostColumn = 16384;

struct Place {
  int row = 0;     // from 1; 0: none
  int column = 0;  // from 1
};

// Of "C12", row 12 and column 3.
Place PlaceOf(absl::string_view reference) {
  Place place;
  size_t at = 0;
  for (; at < reference.size() && absl::ascii_isalpha(static_cast<unsigned char>(reference[at]));
       ++at) {
    place.column = place.column * 26 +
                   (absl::ascii_toupper(static_cast<unsigned char>(reference[at])) - 'A' + 1);
    if (place.column > kMostColumn) return {};
  }
  if (!absl::SimpleAtoi(reference.substr(at), &place.row) || place.row < 1) return {};
  return place;
}

// The text of a string with or without runs; phonetic hints are left out.
std::string StringOf(const pugi::xml_node& node) {
  TextBuilder text;
  for (const pugi::xml_node& child : node.children()) {
    const absl::string_view name = LocalName(child);
    if (name == "t") text.Verbatim(child.child_value());
    if (name != "r") continue;
    const absl::string_view align =
        LocalAttribute(LocalChild(LocalChild(child, "rPr"), "vertAlign"), "val");
    const Script script = align == "superscript" ? Script::kSuper
                          : align == "subscript" ? Script::kSub
                                                 : Script::kNone;
    if (script != Script::kNone) text.BeginScript(script);
    text.Verbatim(LocalChild(child, "t").child_value());
    if (script != Script::kNone) text.EndScript();
  }
  std::string all = text.Take();
  if (!all.empty()) all.pop_back();  // the line end
  return all;
}

// What the whole workbook shares.
struct Workbook {
  std::vector<std::string> strings;
  std::vector<std::string> formats;  // codes, by style of a cell
  bool since_1904 = false;
};

class SheetReader {
 public:
  SheetReader(const Workbook& workbook, int64_t* cells_left, TextBuilder* text, LeftOut* left_out)
      : workbook_(workbook), cells_left_(*cells_left), text_(*text), left_out_(*left_out) {}

  // False if no cells are left.
  bool Read(const pugi::xml_node& sheet) {
    const pugi::xml_node data = LocalChild(sheet, "sheetData");
    FindHiddenColumns(LocalChild(sheet, "cols"));
    FindMerges(LocalChild(sheet, "mergeCells"));
    first_column_ = FirstColumn(data);
    text_.BeginTable();
    bool whole = true;
    for (const pugi::xml_node& row : data.children()) {
      if (LocalName(row) != "row") continue;
      row_ = LocalNumber(row, "r", row_ + 1);
      if (IsTrue(LocalAttribute(row, "hidden"))) {
        left_out_.hidden += row.first_child() ? 1 : 0;
        continue;
      }
      whole = ReadRow(row);
      if (!whole) break;
    }
    text_.EndTable();
    return whole;
  }

  bool has_uncomputed() const { return has_uncomputed_; }

 private:
  void FindHiddenColumns(const pugi::xml_node& columns) {
    for (const pugi::xml_node& column : columns.children()) {
      if (!IsTrue(LocalAttribute(column, "hidden"))) continue;
      const int last = std::min(LocalNumber(column, "max", 0), kMostColumn);
      for (int i = std::max(LocalNumber(column, "min", 1), 1); i <= last; ++i) hidden_.insert(i);
    }
  }

  void FindMerges(const pugi::xml_node& merges) {
    for (const pugi::xml_node& merge : merges.children()) {
      const std::vector<absl::string_view> ends = absl::StrSplit(LocalAttribute(merge, "ref"), ':');
      if (ends.size() != 2) continue;
      const Place from = PlaceOf(ends[0]), to = PlaceOf(ends[1]);
      if (from.row > 0 && to.row > from.row) merges_[{from.column, from.row}] = to.row;
    }
  }

  // Whether a cell belongs to one above it.
  bool IsMerged(int column) const {
    auto merge = merges_.lower_bound({column, row_});
    if (merge == merges_.begin()) return false;
    --merge;
    return merge->first.first == column && merge->second >= row_;
  }

  static int FirstColumn(const pugi::xml_node& data) {
    int first = kMostColumn;
    for (const pugi::xml_node& row : data.children()) {
      for (const pugi::xml_node& cell : row.children()) {
        if (!cell.first_child()) continue;
        const int column = PlaceOf(LocalAttribute(cell, "r")).column;
        first = std::min(first, column == 0 ? 1 : column);
        break;
      }
    }
    return first;
  }

  bool ReadRow(const pugi::xml_node& row) {
    text_.BeginRow();
    int next = first_column_, at = 0;
    for (const pugi::xml_node& cell : row.children()) {
      if (LocalName(cell) != "c") continue;
      const Place place = PlaceOf(LocalAttribute(cell, "r"));
      const int column = place.column == 0 ? at + 1 : place.column;
      at = column;
      if (column < next) continue;
      const std::string value = ValueOf(cell);
      const bool merged = IsMerged(column);
      if (value.empty() && !merged) continue;
      int gap = 0;
      for (int i = next; i < column; ++i) gap += hidden_.count(i) == 0 ? 1 : 0;
      next = column + 1;
      if (hidden_.count(column) > 0) {
        left_out_.hidden += hidden_columns_.insert(column).second ? 1 : 0;
        text_.SkipColumns(gap);
        continue;
      }
      cells_left_ -= gap + 1;
      if (cells_left_ < 0) break;
      text_.SkipColumns(gap);
      text_.BeginCell({.continues = merged});
      text_.Verbatim(value);
      text_.EndCell();
    }
    text_.EndRow();
    return cells_left_ >= 0;
  }

  // The value as the cell shows it.
  std::string ValueOf(const pugi::xml_node& cell) {
    const absl::string_view type = LocalAttribute(cell, "t");
    const auto style = static_cast<size_t>(std::max(LocalNumber(cell, "s", 0), 0));
    const absl::string_view format =
        style < workbook_.formats.size() ? absl::string_view(workbook_.formats[style]) : "General";
    double number = 0;
    const bool is_number = (type.empty() || type == "n") &&
                           absl::SimpleAtod(LocalChild(cell, "v").child_value(), &number);
    const std::string value =
        is_number ? FormatNumber(number, format, workbook_.since_1904) : TextOf(cell, type);
    const bool hidden =
        is_number ? value.empty() && number != 0 : !value.empty() && HidesText(format);
    left_out_.hidden += hidden ? 1 : 0;
    return hidden ? "" : value;
  }

  std::string TextOf(const pugi::xml_node& cell, absl::string_view type) {
    if (type == "inlineStr") return StringOf(LocalChild(cell, "is"));
    const std::string value = LocalChild(cell, "v").child_value();
    if (value.empty()) {
      const std::string formula = LocalChild(cell, "f").child_value();
      if (formula.empty()) return "";
      has_uncomputed_ = has_uncomputed_ || type != "str";
      return type == "str" ? "" : absl::StrCat("=", formula);
    }
    if (type == "s") {
      size_t index = 0;
      const bool known = absl::SimpleAtoi(value, &index) && index < workbook_.strings.size();
      return known ? workbook_.strings[index] : "";
    }
    if (type == "b") return value == "1" ? "TRUE" : "FALSE";
    return value;
  }

  const Workbook& workbook_;
  int64_t& cells_left_;
  TextBuilder& text_;
  LeftOut& left_out_;
  std::set<int> hidden_;                       // columns
  std::set<int> hidden_columns_;               // those that have values
  std::map<std::pair<int, int>, int> merges_;  // by column and first row: the last row
  int first_column_ = 1;
  int row_ = 0;
  bool has_uncomputed_ = false;
};

std::vector<std::string> ReadFormats(const pugi::xml_node& styles) {
  std::map<int, std::string> codes;
  for (const pugi::xml_node& format : LocalChild(styles, "numFmts").children()) {
    codes[LocalNumber(format, "numFmtId", -1)] = std::string(LocalAttribute(format, "formatCode"));
  }
  std::vector<std::string> formats;
  for (const pugi::xml_node& style : LocalChild(styles, "cellXfs").children()) {
    if (LocalName(style) != "xf") continue;
    const int id = LocalNumber(style, "numFmtId", 0);
    const auto own = codes.find(id);
    formats.emplace_back(own != codes.end() ? absl::string_view(own->second)
                                            : BuiltinNumberFormat(id));
  }
  return formats;
}

class WorkbookReader {
 public:
  WorkbookReader(absl::string_view what, const ZipArchive& archive, ReadContext& context)
      : what_(what), archive_(archive), context_(context) {}

  absl::StatusOr<std::string> Read(const std::string& main) {
    const auto book = OptionalPart(what_, archive_, main, context_.budget);
    if (!book.ok()) return book.status();
    if (*book == nullptr) return archive_.Read(main, context_.budget).status();
    const auto relationships = RelationshipsOf(what_, archive_, main, context_.budget);
    if (!relationships.ok()) return relationships.status();
    const pugi::xml_node root = (*book)->document_element();
    workbook_.since_1904 = IsTrue(LocalAttribute(LocalChild(root, "workbookPr"), "date1904"));
    const absl::Status shared = ReadShared(*relationships);
    if (!shared.ok()) return shared;
    int64_t cells_left = kMostCells;
    for (const pugi::xml_node& sheet : LocalChild(root, "sheets").children()) {
      const absl::string_view state = LocalAttribute(sheet, "state");
      if (absl::EqualsIgnoreCase(state, "hidden") || absl::EqualsIgnoreCase(state, "veryHidden")) {
        ++context_.left_out.hidden;
        continue;
      }
      const absl::Status read = ReadSheet(sheet, *relationships, &cells_left);
      if (!read.ok()) return read;
      if (cells_left < 0) {
        context_.incomplete = true;
        context_.remarks.push_back(absl::StrCat(
            what_, " has more than 1,000,000 cells; the rest is left out. Save its sheets as csv"));
        break;
      }
    }
    return text_.Take();
  }

 private:
  absl::Status ReadShared(const std::vector<Relationship>& relationships) {
    const auto strings =
        OptionalPart(what_, archive_, PartOfType(relationships, "sharedStrings"), context_.budget);
    if (!strings.ok()) return strings.status();
    if (*strings != nullptr) {
      for (const pugi::xml_node& item : (*strings)->document_element().children()) {
        if (LocalName(item) == "si") workbook_.strings.push_back(StringOf(item));
      }
    }
    const auto styles =
        OptionalPart(what_, archive_, PartOfType(relationships, "styles"), context_.budget);
    if (!styles.ok()) return styles.status();
    if (*styles != nullptr) workbook_.formats = ReadFormats((*styles)->document_element());
    return absl::OkStatus();
  }

  absl::Status ReadSheet(const pugi::xml_node& sheet,
                         const std::vector<Relationship>& relationships, int64_t* cells_left) {
    // The relationship's id has the name "id" with a prefix; "sheetId" is another one.
    const std::string name = PartOfId(relationships, LocalAttribute(sheet, "id"));
    const auto part = OptionalPart(what_, archive_, name, context_.budget);
    if (!part.ok()) return part.status();
    if (*part == nullptr) return absl::OkStatus();
    text_.EndParagraph();
    text_.Prefix("## ");
    text_.Flow(LocalAttribute(sheet, "name"));
    text_.Prefix("");
    text_.EndParagraph();
    SheetReader reader(workbook_, cells_left, &text_, &context_.left_out);
    reader.Read((*part)->document_element());
    text_.EndParagraph();
    if (reader.has_uncomputed()) {
      context_.remarks.push_back(absl::StrCat(
          what_, ": sheet ", LocalAttribute(sheet, "name"),
          " has formulas without values, which are shown as they are; save it by a spreadsheet"));
    }
    const auto parts = RelationshipsOf(what_, archive_, name, context_.budget);
    if (!parts.ok()) return parts.status();
    for (const Relationship& drawing : *parts) {
      if (drawing.type != "drawing") continue;
      const absl::Status written = WriteEmbedded(what_, archive_, drawing, context_, &text_);
      if (!written.ok()) return written;
    }
    return ReadComments(*parts);
  }

  absl::Status ReadComments(const std::vector<Relationship>& parts) {
    const auto part = OptionalPart(what_, archive_, PartOfType(parts, "comments"), context_.budget);
    if (!part.ok()) return part.status();
    if (*part == nullptr) return absl::OkStatus();
    for (const pugi::xml_node& comment :
         LocalChild((*part)->document_element(), "commentList").children()) {
      if (!context_.options.comments) {
        ++context_.left_out.comments;
        continue;
      }
      text_.Flow(absl::StrCat("[comment ", LocalAttribute(comment, "ref"), "] ",
                              StringOf(LocalChild(comment, "text"))));
      text_.EndLine();
    }
    text_.EndParagraph();
    return absl::OkStatus();
  }

  const absl::string_view what_;
  const ZipArchive& archive_;
  ReadContext& context_;
  Workbook workbook_;
  TextBuilder text_;
};

}  // namespace

absl::StatusOr<std::string> ReadXlsx(absl::string_view what, const ZipArchive& archive,
                                     const std::string& main, ReadContext& context) {
  return WorkbookReader(what, archive, context).Read(main);
}

}  // namespace annulus::client
