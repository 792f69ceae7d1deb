#include "client/read/pdf/pdf_scripts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "client/read/characters.h"

namespace annulus::client {
namespace {

bool IsGap(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }

std::string WithoutBlanks(absl::string_view text) {
  std::string dense(text);
  dense.erase(std::remove_if(dense.begin(), dense.end(), IsGap), dense.end());
  return dense;
}

// A page without its blanks, and which parts of it are taken by lines.
struct Dense {
  explicit Dense(absl::string_view layout) {
    for (size_t i = 0; i < layout.size(); ++i) {
      if (IsGap(layout[i])) {
        if (!gaps.empty()) gaps.back() = true;
        continue;
      }
      text += layout[i];
      places.push_back(i);
      gaps.push_back(i + 1 == layout.size());
    }
    taken.assign(text.size(), false);
  }

  // Where a line stands by itself and no other line has been found; npos if nowhere.
  size_t Find(const std::string& line) const {
    for (size_t at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) {
      const size_t end = at + line.size();
      const bool apart = (at == 0 || gaps[at - 1]) && gaps[end - 1];
      if (apart && std::find(taken.begin() + static_cast<std::ptrdiff_t>(at),
                             taken.begin() + static_cast<std::ptrdiff_t>(end),
                             true) == taken.begin() + static_cast<std::ptrdiff_t>(end)) {
        return at;
      }
    }
    return std::string::npos;
  }

  std::string text;
  std::vector<size_t> places;  // of each character in the layout
  std::vector<bool> gaps;      // a blank or the end follows
  std::vector<bool> taken;
};

// What `marked` has and the layout lacks, by the place in the layout before which it stands.
void Compare(const Dense& page, size_t at, absl::string_view marked,
             std::map<size_t, std::string>* inserts) {
  for (size_t i = 0; i < marked.size(); ++i) {
    const bool fits = at < page.text.size() && marked[i] == page.text[at];
    if (fits) {
      ++at;
    } else if (marked[i] == ')' && at > 0) {
      (*inserts)[page.places[at - 1] + 1] += ')';
    } else if (!IsGap(marked[i])) {
      (*inserts)[at < page.places.size() ? page.places[at] : page.places.back() + 1] += marked[i];
    } else if (at > 0 && !page.gaps[at - 1] && i + 1 < marked.size() && IsDigit(marked[i + 1]) &&
               IsDigit(page.text[at - 1])) {
      (*inserts)[page.places[at]] += ' ';  // "1 3/4"
    }
  }
}

}  // namespace

void MarkPdfScripts(const PdfPage& boxes, const ReadBudget& budget, std::string* layout) {
  const bool any =
      std::any_of(boxes.begin(), boxes.end(), [](const PdfLine& line) { return line.has_scripts; });
  if (!any) return;
  Dense page(*layout);
  std::vector<std::string> plain;
  for (const PdfLine& line : boxes) plain.push_back(WithoutBlanks(line.plain));
  // Long lines first: a short one may also be part of them.
  std::vector<size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return plain[a].size() > plain[b].size(); });
  std::map<size_t, std::string> inserts;
  for (const size_t index : order) {
    if (budget.TimeIsUp()) return;
    if (plain[index].empty()) continue;
    const size_t at = page.Find(plain[index]);
    if (at == std::string::npos) continue;
    std::fill_n(page.taken.begin() + static_cast<std::ptrdiff_t>(at), plain[index].size(), true);
    if (boxes[index].has_scripts) Compare(page, at, boxes[index].text, &inserts);
  }
  std::string marked;
  size_t done = 0;
  for (const auto& [place, text] : inserts) {
    marked += layout->substr(done, place - done) + text;
    done = place;
  }
  *layout = marked + layout->substr(done);
}

}  // namespace annulus::client
