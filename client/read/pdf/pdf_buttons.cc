#include "client/read/pdf/pdf_buttons.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/read/pdf/qdf.h"

namespace annulus::client {
namespace {

// Of field flags.
constexpr int kPushButton = 1 << 16;

// Numbers of new objects, beyond those that there are. Each form has its length behind it.
constexpr int kOnForm = 1, kOffForm = 3, kFont = 5;

// What counts of a dictionary that may be a field or its place on a page.
struct Field {
  // /Subtype, /FT, /Ff, /V, /AS; empty: it has none
  absl::string_view subtype, type, flags, value, state;
  absl::string_view appearance;  // the lines of /AP; empty: it has none
  int parent = 0;                // number of an object
};

Field ReadField(absl::string_view lines) {
  Field field;
  for (QdfEntry entry; TakeQdfEntry(&lines, &entry);) {
    absl::string_view value = entry.value;
    if (entry.name == "AP") {
      field.appearance = entry.lines;
    } else if (entry.name == "Parent") {
      if (absl::ConsumeSuffix(&value, " 0 R") && !absl::SimpleAtoi(value, &field.parent)) {
        field.parent = 0;
      }
    } else if (entry.name == "Subtype") {
      field.subtype = value;
    } else if (entry.name == "FT") {
      field.type = value;
    } else if (entry.name == "Ff") {
      field.flags = value;
    } else if (entry.name == "V") {
      field.value = value;
    } else if (entry.name == "AS") {
      field.state = value;
    }
  }
  return field;
}

class Buttons {
 public:
  explicit Buttons(std::string* qdf) : qdf_(qdf), objects_(FindQdfObjects(*qdf)) {}

  int Draw() {
    for (size_t i = 0; i < objects_.size(); ++i) {
      places_.emplace(objects_[i].number, i);
      last_ = std::max(last_, objects_[i].number);
    }
    const size_t end = qdf_->rfind("\nxref\n");
    if (end == std::string::npos) return 0;
    std::string drawn;
    size_t copied = 0;
    int count = 0;
    for (const auto& [number, page, lines] : objects_) {
      if (!absl::StrContains(lines, "  /Subtype /Widget\n")) continue;
      const Field widget = ReadField(lines);
      int flags = 0;
      if (widget.subtype != "/Widget" || Inherited(widget, &Field::type) != "/Btn") continue;
      if (absl::SimpleAtoi(Inherited(widget, &Field::flags), &flags) && (flags & kPushButton)) {
        continue;
      }
      const absl::string_view state =
          widget.state.empty() ? Inherited(widget, &Field::value) : widget.state;
      const bool on = !state.empty() && state != "/Off";
      const absl::string_view place =
          widget.appearance.empty() ? lines.substr(0, 0) : widget.appearance;
      const auto at = static_cast<size_t>(place.data() - qdf_->data());
      absl::StrAppend(&drawn, absl::string_view(*qdf_).substr(copied, at - copied), "  /AP <<\n",
                      "    /N ", last_ + (on ? kOnForm : kOffForm), " 0 R\n  >>\n");
      copied = at + place.size();
      ++count;
    }
    if (count == 0) return 0;
    absl::StrAppend(&drawn, absl::string_view(*qdf_).substr(copied, end + 1 - copied));
    AppendForm("([x])", last_ + kOnForm, &drawn);
    AppendForm("([ ])", last_ + kOffForm, &drawn);
    absl::StrAppend(&drawn, last_ + kFont, " 0 obj\n<<\n  /BaseFont /Courier\n  /Subtype /Type1\n",
                    "  /Type /Font\n>>\nendobj\n", absl::string_view(*qdf_).substr(end));
    *qdf_ = std::move(drawn);
    return count;
  }

 private:
  // A value that a field or one of its parents has; empty: none has it.
  absl::string_view Inherited(const Field& field, absl::string_view Field::*value) {
    constexpr int kDeepest = 16;
    const Field* from = &field;
    for (int depth = 0; depth < kDeepest && (from->*value).empty(); ++depth) {
      const auto place = places_.find(from->parent);
      if (place == places_.end()) break;
      // Read once: a parent may have a million kids.
      const auto [known, is_new] = parents_.try_emplace(from->parent);
      if (is_new) known->second = ReadField(objects_[place->second].lines);
      from = &known->second;
    }
    return from->*value;
  }

  // An appearance that shows this string, and the object after it, which QDF wants: its length. A
  // reader scales it to the button's size.
  void AppendForm(absl::string_view string, int number, std::string* to) const {
    const std::string content = absl::StrCat("BT /F 10 Tf 0 6 Td ", string, " Tj ET");
    absl::StrAppend(to, number, " 0 obj\n<<\n  /BBox [\n    0\n    0\n    18\n    18\n  ]\n");
    absl::StrAppend(to, "  /Length ", number + 1, " 0 R\n  /Resources <<\n    /Font <<\n");
    absl::StrAppend(to, "      /F ", last_ + kFont, " 0 R\n    >>\n  >>\n  /Subtype /Form\n");
    absl::StrAppend(to, "  /Type /XObject\n>>\nstream\n", content, "\nendstream\nendobj\n\n");
    absl::StrAppend(to, number + 1, " 0 obj\n", content.size() + 1, "\nendobj\n\n");
  }

  std::string* const qdf_;
  const std::vector<QdfObject> objects_;
  std::unordered_map<int, size_t> places_;  // in objects_, by number
  std::unordered_map<int, Field> parents_;  // by number
  int last_ = 0;                            // largest number
};

}  // namespace

int DrawPdfButtons(std::string* qdf) { return Buttons(qdf).Draw(); }

}  // namespace annulus::client
