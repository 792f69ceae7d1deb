#include "client/read/pdf/qdf.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace annulus::client {
namespace {

// Takes a line without its end.
absl::string_view TakeQdfLine(absl::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const absl::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

}  // namespace

std::vector<QdfObject> FindQdfObjects(absl::string_view qdf) {
  std::vector<QdfObject> objects;
  int page = 0;  // of the next object
  while (!qdf.empty()) {
    absl::string_view line = TakeQdfLine(&qdf);
    if (absl::ConsumePrefix(&line, "%% Page ")) {
      if (!absl::SimpleAtoi(line, &page)) page = 0;
      continue;
    }
    QdfObject object;
    if (!absl::ConsumeSuffix(&line, " 0 obj") || !absl::SimpleAtoi(line, &object.number)) continue;
    object.page = std::exchange(page, 0);
    const bool is_array = absl::ConsumePrefix(&qdf, "[\n");
    if (!is_array && !absl::ConsumePrefix(&qdf, "<<\n")) {
      objects.push_back(object);  // a number, for example: its number is taken
      continue;
    }
    const absl::string_view last = is_array ? "\n]\n" : "\n>>\n";
    const size_t end = qdf.find(last);
    if (end == absl::string_view::npos) return objects;
    object.lines = qdf.substr(0, end + 1);
    objects.push_back(object);
    qdf.remove_prefix(end + last.size());
    if (is_array || !absl::StartsWith(qdf, "stream\n")) continue;
    qdf.remove_prefix(std::min(qdf.find("\nendstream"), qdf.size()));
  }
  return objects;
}

// An entry begins two blanks from the left.
bool TakeQdfEntry(absl::string_view* lines, QdfEntry* entry) {
  while (!lines->empty()) {
    const char* const begin = lines->data();
    absl::string_view line = TakeQdfLine(lines);
    if (!absl::ConsumePrefix(&line, "  /")) continue;
    while (absl::StartsWith(*lines, "   ") || absl::StartsWith(*lines, "  >") ||
           absl::StartsWith(*lines, "  ]")) {
      TakeQdfLine(lines);
    }
    const size_t name_end = std::min(line.find(' '), line.size());
    entry->name = line.substr(0, name_end);
    entry->value = absl::StripAsciiWhitespace(line.substr(name_end));
    entry->lines = {begin, static_cast<size_t>(lines->data() - begin)};
    return true;
  }
  return false;
}

}  // namespace annulus::client
