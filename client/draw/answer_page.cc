#include "client/draw/answer_page.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/draw/svg_canvas.h"

namespace annulus::client {
namespace {

// Colours and faces as on the daemon's page: server/http/page/page.css.
constexpr char kStyle[] = R"(
:root{color-scheme:light dark;--ground:#f5f4f0;--sheet:#fff;--ink:#1d2420;--soft:#58615b;--line:#dcdad2;
--accent:#2a6655;--accent-soft:#e3eeea;--mark:#fbeaa8;--now:#f6cf4a;
--serif:"Iowan Old Style","Palatino Linotype",Palatino,"URW Palladio L",Georgia,serif}
@media(prefers-color-scheme:dark){:root{--ground:#141816;--sheet:#1c211f;--ink:#e6e9e4;--soft:#a3ada6;
--line:#343c38;--accent:#7fc4ac;--accent-soft:#24382f;--mark:#453e1d;--now:#6e5b12}}
*{box-sizing:border-box}html,body{height:100%}p,h1,h2,ol{margin:0}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,"DejaVu Sans",sans-serif;
display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1.1fr)}
main,aside{overflow-y:auto;height:100%;padding:28px 30px 60px}
aside{background:var(--sheet);border-left:1px solid var(--line)}
main>*{max-width:46rem;margin-left:auto;margin-right:auto}
h1{font-size:17px;white-space:pre-wrap;overflow-wrap:anywhere}
h2{font-size:13px;color:var(--soft);margin:0 auto 10px;max-width:44rem;overflow-wrap:anywhere}
section+section{border-top:1px solid var(--line);margin-top:30px;padding-top:22px}
.answer{font:17px/1.62 var(--serif);margin-top:14px;white-space:pre-wrap;overflow-wrap:anywhere}
.cite{font:600 11.5px/1 system-ui,"DejaVu Sans",sans-serif;padding:3px 6px;margin:0 1px 0 3px;border-radius:6px;
vertical-align:2px;color:var(--accent);background:var(--accent-soft);text-decoration:none}
.note{color:var(--soft);font-size:13px;margin-top:20px}
ol{list-style:none;padding:0;display:grid;gap:6px;margin-top:8px}
li a{display:grid;grid-template-columns:auto 1fr;gap:0 10px;padding:7px 10px;border:1px solid var(--line);
border-radius:8px;background:var(--sheet);color:inherit;text-decoration:none}
li b{font-size:12.5px;color:var(--accent)}li small{color:var(--soft);overflow-wrap:anywhere}
li span{grid-column:2;font:14.5px/1.45 var(--serif);overflow-wrap:anywhere;display:-webkit-box;
-webkit-box-orient:vertical;-webkit-line-clamp:2;overflow:hidden}
.piece{font:15.5px/1.6 var(--serif);white-space:pre-wrap;overflow-wrap:anywhere;max-width:44rem;margin:0 auto;
content-visibility:auto;contain-intrinsic-size:auto 2200px}
mark{background:var(--mark);color:inherit;border-radius:3px;scroll-margin:30vh}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
@media(max-width:760px){html,body{height:auto}body{display:block}main,aside{height:auto;padding:18px 14px}
aside{border-left:0;border-top:1px solid var(--line)}}
)";

constexpr size_t kPieceBytes = 6 << 10;  // at least, if the text goes on

bool IsInside(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The nearest place at or before `at` where a character begins.
size_t ToCharacter(absl::string_view text, size_t at) {
  at = std::min(at, text.size());
  while (at > 0 && at < text.size() && IsInside(text[at])) --at;
  return at;
}

// Where pieces of the text end: behind lines, so that browsers can leave out those out of sight.
std::set<size_t> PieceEnds(absl::string_view text) {
  std::set<size_t> ends;
  for (size_t at = kPieceBytes; at < text.size(); at += kPieceBytes) {
    const size_t line = text.find('\n', at);
    if (line == absl::string_view::npos) break;
    at = line + 1;
    ends.insert(at);
  }
  ends.insert(text.size());
  return ends;
}

struct Range {
  size_t begin;
  size_t end;
  size_t number;
};

// The classes of the passages that have all of [begin, end), and the id of one that begins there:
// "<mark class="p1 p2" id="p2">", or empty.
std::string MarkTag(const std::vector<Range>& ranges, size_t begin, size_t end) {
  std::string classes;
  std::string id;
  for (const Range& range : ranges) {
    if (range.begin > begin || range.end < end) continue;
    absl::StrAppend(&classes, classes.empty() ? "" : " ", "p", range.number);
    if (range.begin == begin && id.empty()) id = absl::StrCat(" id=\"p", range.number, "\"");
  }
  return classes.empty() ? "" : absl::StrCat("<mark class=\"", classes, "\"", id, ">");
}

// The text in pieces, with its passages marked.
void AddText(absl::string_view text, const std::vector<Range>& ranges, std::string& html) {
  const std::set<size_t> ends = PieceEnds(text);
  std::set<size_t> cuts = ends;
  for (const Range& range : ranges) cuts.insert({range.begin, range.end});
  size_t begin = 0;
  html += "<div class=\"piece\">";
  for (const size_t end : cuts) {
    if (end > begin) {
      const std::string tag = MarkTag(ranges, begin, end);
      // Passages that begin where another has the id.
      for (const Range& range : ranges) {
        const std::string id = absl::StrCat(" id=\"p", range.number, "\"");
        if (range.begin != begin || absl::StrContains(tag, id)) continue;
        absl::StrAppend(&html, "<a", id, "></a>");
      }
      absl::StrAppend(&html, tag, EscapeMarkup(text.substr(begin, end - begin)),
                      tag.empty() ? "" : "</mark>");
      begin = end;
    }
    if (end < text.size() && ends.contains(end)) html += "</div><div class=\"piece\">";
  }
  html += "</div>";
}

void AddDocument(const AnswerPage& page, size_t index, std::string& html) {
  const AnswerPage::Document& document = page.documents[index];
  absl::StrAppend(&html, "<section><h2>", EscapeMarkup(document.title), "</h2>");
  std::vector<Range> ranges;
  for (size_t i = 0; i < page.passages.size(); ++i) {
    const AnswerPage::Passage& passage = page.passages[i];
    if (passage.document != index) continue;
    if (document.text.empty()) {
      absl::StrAppend(&html, "<p class=\"note\">", EscapeMarkup(passage.where), "</p>");
      AddText(passage.text, {{0, passage.text.size(), i + 1}}, html);
      continue;
    }
    ranges.push_back({ToCharacter(document.text, passage.begin),
                      ToCharacter(document.text, passage.end), i + 1});
  }
  if (!document.text.empty()) AddText(document.text, ranges, html);
  html += "</section>";
}

void AddAnswer(const AnswerPage& page, std::string& html) {
  absl::StrAppend(&html, "<main><h1>", EscapeMarkup(page.question), "</h1><div class=\"answer\">");
  const absl::string_view answer = page.answer;
  size_t begin = 0;
  for (const AnswerPage::Note& note : page.notes) {
    const size_t at = std::max(begin, ToCharacter(answer, note.at));
    html += EscapeMarkup(answer.substr(begin, at - begin));
    begin = at;
    for (const int number : note.numbers) {
      absl::StrAppend(&html, "<a class=\"cite\" href=\"#p", number, "\">", number, "</a>");
    }
  }
  absl::StrAppend(&html, EscapeMarkup(answer.substr(begin)), "</div>");
  absl::StrAppend(&html, "<p class=\"note\">",
                  page.passages.empty()
                      ? "No passage stands out: the answer may rest on many, or on none."
                      : "Passages that the model attended most: attention, not proof",
                  "</p><ol>");
  for (size_t i = 0; i < page.passages.size(); ++i) {
    const AnswerPage::Passage& passage = page.passages[i];
    absl::StrAppend(&html, "<li><a href=\"#p", i + 1, "\"><b>", i + 1, "</b><small>",
                    EscapeMarkup(passage.where), "</small><span>", EscapeMarkup(passage.text),
                    "</span></a></li>");
  }
  html += "</ol></main>";
}

}  // namespace

std::string AnswerPageHtml(const AnswerPage& page) {
  std::string html = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\"><title>",
      EscapeMarkup(page.question), "</title><style>", kStyle);
  for (size_t i = 1; i <= page.passages.size(); ++i) {
    absl::StrAppend(&html, "body:has(#p", i, ":target) :is(.p", i, ",[href=\"#p", i,
                    "\"]){background:var(--now);color:var(--ink)}\n");
  }
  html += "</style></head><body>";
  AddAnswer(page, html);
  html += "<aside>";
  for (size_t i = 0; i < page.documents.size(); ++i) AddDocument(page, i, html);
  html += "</aside></body></html>\n";
  return html;
}

}  // namespace annulus::client
