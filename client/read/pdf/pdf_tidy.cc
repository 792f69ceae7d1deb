#include "client/read/pdf/pdf_tidy.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/read/characters.h"

namespace annulus::client {
namespace {

using Lines = std::vector<std::string>;

constexpr absl::string_view kSoftHyphen = "\xC2\xAD";

size_t IndentOf(absl::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

// Shortens runs of spaces and dots after the indent.
std::string Squeezed(absl::string_view line, size_t margin) {
  constexpr size_t kMostIndent = 20;
  const size_t indent = IndentOf(line);
  std::string tidy(std::min(indent - std::min(indent, margin), kMostIndent), ' ');
  for (size_t i = indent; i < line.size();) {
    // "....", ". . . ." and the same with blanks around.
    size_t end = i;
    int dots = 0;
    while (end < line.size() && (line[end] == ' ' || line[end] == '.')) {
      dots += line[end++] == '.' ? 1 : 0;
    }
    constexpr int kLeader = 4;
    if (dots >= kLeader) {
      absl::StrAppend(&tidy, tidy.empty() || tidy.back() == ' ' ? "" : " ", "... ");
      i = end;
      continue;
    }
    size_t blanks = 0;
    while (i < line.size() && line[i] == ' ') ++blanks, ++i;
    tidy.append(std::min<size_t>(blanks, 2), ' ');
    if (i < line.size()) tidy += line[i++];
  }
  return std::string(absl::StripTrailingAsciiWhitespace(tidy));
}

Lines TidyLines(absl::string_view page) {
  const std::string letters = absl::StrReplaceAll(page, {{"\xEF\xAC\x80", "ff"},
                                                         {"\xEF\xAC\x81", "fi"},
                                                         {"\xEF\xAC\x82", "fl"},
                                                         {"\xEF\xAC\x83", "ffi"},
                                                         {"\xEF\xAC\x84", "ffl"},
                                                         {"\xEF\xAC\x85", "st"},
                                                         {"\xEF\xAC\x86", "st"}});
  Lines raw = absl::StrSplit(letters, '\n');
  size_t margin = std::string::npos;
  for (const std::string& line : raw) {
    if (IndentOf(line) < line.size()) margin = std::min(margin, IndentOf(line));
  }
  Lines lines;
  for (const std::string& line : raw) {
    std::string tidy = Squeezed(line, margin);
    // No more than one empty line, and none at the beginning.
    if (tidy.empty() && (lines.empty() || lines.back().empty())) continue;
    lines.push_back(std::move(tidy));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

// A line at the edge of a page. Lines of equal text whose numbers are equal too, or count the
// pages, are page furniture.
struct EdgeLine {
  size_t page = 0;
  size_t at = 0;       // index in the page
  std::string text{};  // with "#" for each number
  std::vector<int64_t> numbers{};
  std::vector<bool> alone{};  // of each number: it stands as page numbers do
};

bool IsPageWord(absl::string_view word) {
  const std::string lower = absl::AsciiStrToLower(word);
  for (const char* known :
       {"page",   "p.",     "pp.",  "seite", "s.",   "pagina", "p\xC3\xA1gina", "pag.",
        "strana", "strona", "str.", "sida",  "side", "sivu",   "oldal",         "of",
        "von",    "de",     "sur",  "di",    "van",  "av"}) {
    if (lower == known) return true;
  }
  return false;
}

// Whether one side of a number lets it be that of the page: nothing, a gap, a sign between parts,
// or a word such as "page". "No. 7" and "Chapter 7" are not such.
bool MayBesidePageNumber(absl::string_view side, absl::string_view word) {
  if (word.empty() || IsPageWord(word)) return true;
  if (absl::StartsWith(side, "  ") || absl::EndsWith(side, "  ")) return true;
  for (const char* sign : {"|", "-", "/", "[", "]", "(", ")", "\xE2\x80\x93", "\xE2\x80\x94",
                           "\xC2\xB7", "\xE2\x80\xA2"}) {
    if (word == sign) return true;
  }
  return false;
}

int64_t RomanValue(absl::string_view text) {
  int64_t value = 0, before = 1000;
  for (const char c : text) {
    const int64_t digit = c == 'i' ? 1 : c == 'v' ? 5 : c == 'x' ? 10 : c == 'l' ? 50 : 100;
    value += digit > before ? digit - 2 * before : digit;
    before = digit;
  }
  return value;
}

EdgeLine ParseEdgeLine(size_t page, size_t at, absl::string_view raw) {
  EdgeLine line{page, at};
  const absl::string_view text = absl::StripAsciiWhitespace(raw);
  if (!text.empty() && text.find_first_not_of("ivxlc") == absl::string_view::npos) {
    return {page, at, "#", {RomanValue(text)}, {true}};
  }
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && IsDigit(text[end])) ++end;
    int64_t number = 0;
    if (!absl::SimpleAtoi(text.substr(i, end - i), &number)) {  // none, or far too long
      end = std::max(end, i + 1);
      absl::StrAppend(&line.text, text.substr(i, end - i));
      i = end;
      continue;
    }
    const absl::string_view before = text.substr(0, i), after = text.substr(end);
    const absl::string_view left = absl::StripTrailingAsciiWhitespace(before);
    const absl::string_view right = absl::StripLeadingAsciiWhitespace(after);
    line.numbers.push_back(number);
    line.alone.push_back(
        MayBesidePageNumber(before.substr(left.size()), left.substr(left.find_last_of(' ') + 1)) &&
        MayBesidePageNumber(after.substr(0, after.size() - right.size()),
                            right.substr(0, right.find(' '))));
    line.text += '#';
    i = end;
  }
  return line;
}

// Whether a line repeats one of an earlier page of the same text: not if its numbers say something
// else ("Total 113", "Invoice 1002").
bool Repeats(const EdgeLine& before, const EdgeLine& line) {
  for (size_t i = 0; i < line.numbers.size(); ++i) {
    const int64_t more = line.numbers[i] - before.numbers[i];
    const bool counts_pages =
        line.alone[i] && more == static_cast<int64_t>(line.page - before.page);
    if (more != 0 && !counts_pages) return false;
  }
  return true;
}

// Leaves the first of the lines that head (or, from the end, end) pages again and again: on three
// pages of which each is at most two after the one before.
void DropFurniture(std::vector<Lines>* pages, bool at_end) {
  constexpr size_t kDepth = 2;  // lines from the edge
  std::map<std::string, std::vector<EdgeLine>> places;
  for (size_t page = 0; page < pages->size(); ++page) {
    const Lines& lines = (*pages)[page];
    size_t seen = 0;
    for (size_t i = 0; i < lines.size() && seen < kDepth; ++i) {
      const size_t at = at_end ? lines.size() - 1 - i : i;
      if (lines[at].empty()) continue;
      ++seen;
      EdgeLine line = ParseEdgeLine(page, at, lines[at]);
      std::string text = line.text;
      places[std::move(text)].push_back(std::move(line));
    }
  }
  for (const auto& [text, at] : places) {
    constexpr size_t kRepeats = 3;
    for (size_t begin = 0, i = 1; i <= at.size(); ++i) {
      const bool goes_on =
          i < at.size() && at[i].page <= at[i - 1].page + 2 && Repeats(at[i - 1], at[i]);
      if (goes_on) continue;
      // A number alone says what the page mark says.
      const size_t kept = text == "#" ? begin : begin + 1;
      for (size_t drop = kept; i - begin >= kRepeats && drop < i; ++drop) {
        (*pages)[at[drop].page][at[drop].at].clear();
      }
      begin = i;
    }
  }
}

// The words of the document in lower case, with hyphens inside.
std::unordered_set<std::string> WordsOf(const std::vector<Lines>& pages) {
  std::unordered_set<std::string> words;
  std::string word;
  for (const Lines& lines : pages) {
    for (const std::string& line : lines) {
      for (const char c : absl::StrCat(line, " ")) {
        if (IsWordByte(c) || c == '-') {
          word += absl::ascii_tolower(static_cast<unsigned char>(c));
          continue;
        }
        if (word.size() > 2) words.insert(word);
        word.clear();
      }
    }
  }
  return words;
}

// Joins the line with the next one if a hyphen at its end parts a word: the word moves up.
void JoinHyphens(const std::unordered_set<std::string>& words, Lines* lines) {
  for (size_t i = 0; i + 1 < lines->size(); ++i) {
    std::string& line = (*lines)[i];
    std::string& next = (*lines)[i + 1];
    const bool soft = absl::EndsWith(line, kSoftHyphen);
    const size_t hyphen = line.size() - (soft ? kSoftHyphen.size() : 1);
    if (next.empty() || line.size() < 3 || (!soft && line.back() != '-')) continue;
    const size_t begin = IndentOf(next);
    // Cells of tables stay apart.
    const bool in_table = absl::StrContains(absl::string_view(line).substr(IndentOf(line)), "  ");
    if (in_table || !IsWordByte(line[hyphen - 1]) || IsDigit(line[hyphen - 1])) continue;
    if (begin == next.size() || !IsWordByte(next[begin])) continue;
    const size_t end = std::min(next.find(' ', begin), next.size());
    std::string rest = next.substr(begin, end - begin);
    size_t first = hyphen;
    while (first > 0 && (IsWordByte(line[first - 1]) || line[first - 1] == '-')) --first;
    size_t last = 0;
    while (last < rest.size() && (IsWordByte(rest[last]) || rest[last] == '-')) ++last;
    const std::string left = absl::AsciiStrToLower(line.substr(first, hyphen - first));
    const std::string right = absl::AsciiStrToLower(rest.substr(0, last));
    const bool goes_on =
        absl::ascii_islower(static_cast<unsigned char>(rest[0])) || (rest[0] & 0x80) != 0;
    const bool hyphenated = words.count(absl::StrCat(left, "-", right)) > 0 &&
                            words.count(absl::StrCat(left, right)) == 0;
    line.resize(soft || (goes_on && !hyphenated) ? hyphen : hyphen + 1);
    if (soft && !goes_on) line += '-';
    line += rest;
    next.erase(0, std::min(end + 1, next.size()));
    if (!next.empty() && begin > 0) next.insert(0, std::string(begin, ' '));
  }
}

}  // namespace

void TidyPdfPages(std::vector<std::string>* pages) {
  std::vector<Lines> tidy;
  for (const std::string& page : *pages) tidy.push_back(TidyLines(page));
  DropFurniture(&tidy, /*at_end=*/false);
  DropFurniture(&tidy, /*at_end=*/true);
  const std::unordered_set<std::string> words = WordsOf(tidy);
  for (size_t i = 0; i < tidy.size(); ++i) {
    JoinHyphens(words, &tidy[i]);
    std::string& page = (*pages)[i];
    page.clear();
    bool gap = false;
    for (const std::string& line : tidy[i]) {
      if (line.empty()) {
        gap = !page.empty();
        continue;
      }
      absl::StrAppend(&page, gap ? "\n" : "", line, "\n");
      gap = false;
    }
  }
}

}  // namespace annulus::client
