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

namespace annulus::client {
namespace {

// Of field flags.
constexpr int kPushButton = 1 << 16;

// Numbers of new objects, beyond those that there are. Each form has its length behind it.
constexpr int kOnForm = 1, kOffForm = 3, kFont = 5;

// Takes a line without its end.
absl::string_view TakeLine(absl::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const absl::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

// What counts of a dictionary that may be a field or its place on a page.
struct Field {
  // /Subtype, /FT, /Ff, /V, /AS; empty: it has none
  absl::string_view subtype, type, flags, value, state;
  absl::string_view appearance;  // the lines of /AP; empty: it has none
  int parent = 0;                // number of an object
};

// In QDF an entry begins on a line of its own, two blanks from the left.
Field ReadField(absl::string_view lines) {
  Field field;
  while (!lines.empty()) {
    const char* const begin = lines.data();
    absl::string_view line = TakeLine(&lines);
    if (!absl::ConsumePrefix(&line, "  /")) continue;
    const size_t name_end = std::min(line.find(' '), line.size());
    while (absl::StartsWith(lines, "   ") || absl::StartsWith(lines, "  >") ||
           absl::StartsWith(lines, "  ]")) {
      TakeLine(&lines);
    }
    const absl::string_view name = line.substr(0, name_end);
    absl::string_view value = absl::StripAsciiWhitespace(line.substr(name_end));
    if (name == "AP") {
      field.appearance = absl::string_view(begin, static_cast<size_t>(lines.data() - begin));
    } else if (name == "Parent") {
      if (absl::ConsumeSuffix(&value, " 0 R") && !absl::SimpleAtoi(value, &field.parent)) {
        field.parent = 0;
      }
    } else if (name == "Subtype") {
      field.subtype = value;
    } else if (name == "FT") {
      field.type = value;
    } else if (name == "Ff") {
      field.flags = value;
    } else if (name == "V") {
      field.value = value;
    } else if (name == "AS") {
      field.state = value;
    }
  }
  return field;
}

class Buttons {
 public:
  explicit Buttons(std::string* qdf) : qdf_(qdf) {}

  int Draw() {
    FindObjects();
    const size_t end = qdf_->rfind("\nxref\n");
    if (end == std::string::npos) return 0;
    std::string drawn;
    size_t copied = 0;
    int count = 0;
    for (const auto& [number, lines] : objects_) {
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
  // The dictionaries of all objects that are some, in their order.
  void FindObjects() {
    absl::string_view rest = *qdf_;
    while (!rest.empty()) {
      absl::string_view line = TakeLine(&rest);
      int number = 0;
      if (!absl::ConsumeSuffix(&line, " 0 obj") || !absl::SimpleAtoi(line, &number)) continue;
      last_ = std::max(last_, number);
      if (!absl::ConsumePrefix(&rest, "<<\n")) continue;
      const size_t end = rest.find("\n>>\n");
      if (end == absl::string_view::npos) return;
      places_.emplace(number, objects_.size());
      objects_.emplace_back(number, rest.substr(0, end + 1));
      rest.remove_prefix(end + 4);
      if (!absl::StartsWith(rest, "stream\n")) continue;
      rest.remove_prefix(std::min(rest.find("\nendstream"), rest.size()));
    }
  }

  // A value that a field or one of its parents has; empty: none has it.
  absl::string_view Inherited(const Field& field, absl::string_view Field::*value) {
    constexpr int kDeepest = 16;
    const Field* from = &field;
    for (int depth = 0; depth < kDeepest && (from->*value).empty(); ++depth) {
      const auto place = places_.find(from->parent);
      if (place == places_.end()) break;
      // Read once: a parent may have a million kids.
      const auto [known, is_new] = parents_.try_emplace(from->parent);
      if (is_new) known->second = ReadField(objects_[place->second].second);
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
  std::vector<std::pair<int, absl::string_view>> objects_;  // number and lines
  std::unordered_map<int, size_t> places_;                  // in objects_, by number
  std::unordered_map<int, Field> parents_;                  // by number
  int last_ = 0;                                            // largest number
};

}  // namespace

int DrawPdfButtons(std::string* qdf) { return Buttons(qdf).Draw(); }

}  // namespace annulus::client
