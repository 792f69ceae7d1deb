#include "client/read/pdf/pdf.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/format/text.h"
#include "client/format/units.h"
#include "client/read/child.h"
#include "client/read/pdf/pdf_boxes.h"
#include "client/read/pdf/pdf_buttons.h"
#include "client/read/pdf/pdf_hidden.h"
#include "client/read/pdf/pdf_notes.h"
#include "client/read/pdf/pdf_ocr.h"
#include "client/read/pdf/pdf_scripts.h"
#include "client/read/pdf/pdf_tidy.h"

namespace annulus::client {
namespace {

constexpr int kCannotOpen = 1;  // exit codes of pdftotext
constexpr int kNotPermitted = 3;

absl::Status Explained(const absl::Status& failure, absl::string_view what, ReadBudget& budget) {
  switch (failure.code()) {
    case absl::StatusCode::kNotFound:
      return absl::FailedPreconditionError(
          absl::StrCat("reading ", what,
                       " needs pdftotext, which is not installed: 'apt-get install poppler-utils', "
                       "or convert the file to text elsewhere"));
    case absl::StatusCode::kDeadlineExceeded:
      return budget.CheckTime(what);
    case absl::StatusCode::kResourceExhausted:
      return budget.TakeBytes(what, budget.bytes_left() + 1);
    default:
      return failure;
  }
}

absl::Status Failed(absl::string_view what, const ChildResult& result) {
  if (absl::StrContains(result.err, "Incorrect password") || result.exit_code == kNotPermitted) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " is encrypted; decrypt it first, for example by qpdf --decrypt --password=..."));
  }
  absl::string_view reason = result.err;
  reason = absl::StripAsciiWhitespace(reason.substr(0, reason.find('\n')));
  if (result.exit_code == kCannotOpen || result.exit_code < 128) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is not a PDF that can be read; it may be cut off or broken",
                     reason.empty() ? "" : " (", reason, reason.empty() ? "" : ")"));
  }
  return absl::InvalidArgumentError(absl::StrCat(what, " made pdftotext fail (signal ",
                                                 result.exit_code - 128, "); it may be broken"));
}

// Runs a tool of poppler over the file, and charges its output to the budget.
absl::StatusOr<std::string> RunPoppler(absl::string_view what, std::vector<std::string> command,
                                       absl::string_view bytes, ReadBudget& budget) {
  const ReadLimits& limits = budget.limits();
  const ChildLimits child{budget.deadline(), budget.bytes_left(), limits.child_memory};
  absl::StatusOr<ChildResult> result = RunChild(command, bytes, child);
  if (!result.ok()) return Explained(result.status(), what, budget);
  if (result->exit_code != 0) return Failed(what, *result);
  const absl::Status left = budget.TakeBytes(what, static_cast<int64_t>(result->out.size()));
  if (!left.ok()) return left;
  if (FindInvalidUtf8(result->out).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " gives text that is not valid UTF-8; it may be broken"));
  }
  return std::move(result->out);
}

// The pages in their original layout. pdftotext ends every page by a form feed.
absl::StatusOr<std::vector<std::string>> LayoutPages(absl::string_view what,
                                                     absl::string_view bytes, ReadBudget& budget) {
  const absl::StatusOr<std::string> text = RunPoppler(
      what,
      {budget.limits().pdf_program, "-layout", "-enc", "UTF-8", "-eol", "unix", kInputPath, "-"},
      bytes, budget);
  if (!text.ok()) return text.status();
  std::vector<std::string> pages = absl::StrSplit(*text, '\f');
  if (absl::StripAsciiWhitespace(pages.back()).empty()) pages.pop_back();
  return pages;
}

// Replaces the pages that are to be read in reading order, and marks powers and indices on the
// others.
absl::Status TakeBoxes(absl::string_view what, absl::string_view bytes, ReadContext& context,
                       std::vector<std::string>* pages) {
  const absl::StatusOr<std::string> boxes = RunPoppler(
      what, {context.budget.limits().pdf_program, "-bbox-layout", "-enc", "UTF-8", kInputPath, "-"},
      bytes, context.budget);
  if (!boxes.ok()) return boxes.status();
  const absl::StatusOr<std::vector<PdfPage>> parsed = ParsePdfBoxes(what, *boxes, context.budget);
  if (!parsed.ok()) return parsed.status();
  for (size_t i = 0; i < std::min(pages->size(), parsed->size()); ++i) {
    const PdfPage& page = (*parsed)[i];
    if (page.empty()) continue;
    const PdfOrder order = context.options.pdf;
    if (order == PdfOrder::kReading || (order == PdfOrder::kByPage && HasColumns(page))) {
      (*pages)[i] = ReadingText(page);
    } else {
      MarkPdfScripts(page, context.budget, &(*pages)[i]);
    }
  }
  return absl::OkStatus();
}

// The pages that show pictures.
struct Pictures {
  std::set<int> any;
  std::set<int> large;  // at least 25 square inches, half of a page of A5
};

absl::StatusOr<Pictures> FindPictures(absl::string_view what, absl::string_view bytes,
                                      ReadBudget& budget) {
  const absl::StatusOr<std::string> list =
      RunPoppler(what, {budget.limits().pdf_images_program, "-list", kInputPath}, bytes, budget);
  if (!list.ok()) return list.status();
  Pictures pictures;
  for (const absl::string_view line : absl::StrSplit(*list, '\n')) {
    // page num type width height color comp bpc enc interp object ID x-ppi y-ppi size ratio
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int page = 0;
    if (words.empty() || !absl::SimpleAtoi(words[0], &page)) continue;
    pictures.any.insert(page);
    double width = 0, height = 0, x_dots = 0, y_dots = 0;
    const bool sized = words.size() > 13 && absl::SimpleAtod(words[3], &width) &&
                       absl::SimpleAtod(words[4], &height) &&
                       absl::SimpleAtod(words[12], &x_dots) &&
                       absl::SimpleAtod(words[13], &y_dots) && x_dots > 0 && y_dots > 0;
    constexpr double kLarge = 25;
    if (sized && width / x_dots * (height / y_dots) >= kLarge) pictures.large.insert(page);
  }
  return pictures;
}

// The pages that show a picture and hold no text. Blank pages are no fault.
std::vector<int> ScannedPages(const std::vector<std::string>& pages, const Pictures& pictures) {
  std::vector<int> scanned;
  for (const int page : pictures.any) {
    const auto at = static_cast<size_t>(page) - 1;
    const bool known = page >= 1 && at < pages.size();
    if (known && absl::StripAsciiWhitespace(pages[at]).empty()) scanned.push_back(page);
  }
  return scanned;
}

// Says which pages those are.
void TellScannedPages(absl::string_view what, const std::vector<int>& scanned,
                      ReadContext& context) {
  if (scanned.empty()) return;
  const bool one = scanned.size() == 1;
  context.incomplete = true;
  context.remarks.push_back(absl::StrCat(
      what, ": ", one ? "page " : "pages ", FormatNumbers(scanned), one ? " shows" : " show",
      " a picture and ", one ? "holds" : "hold", " no text, so nothing of ", one ? "it" : "them",
      " is read. ",
      context.options.ocr ? "ocrmypdf found none either" : "--ocr reads such pages by ocrmypdf"));
}

// Says which of the scanned pages have text now.
void TellRecognizedPages(absl::string_view what, const std::vector<int>& scanned,
                         const std::vector<std::string>& pages, ReadContext& context) {
  std::vector<int> read;
  for (const int page : scanned) {
    const auto at = static_cast<size_t>(page) - 1;
    if (at < pages.size() && !absl::StripAsciiWhitespace(pages[at]).empty()) read.push_back(page);
  }
  if (read.empty()) return;
  context.remarks.push_back(absl::StrCat(what, ": the text of ",
                                         read.size() == 1 ? "page " : "pages ", FormatNumbers(read),
                                         " was recognized by ocrmypdf, which makes mistakes"));
}

// Runs a tool of qpdf over the file. Empty, with a remark, if it is absent or fails.
absl::StatusOr<std::string> RunQpdf(absl::string_view what, std::vector<std::string> command,
                                    absl::string_view bytes, ReadContext& context) {
  const ReadLimits& limits = context.budget.limits();
  absl::StatusOr<ChildResult> result = RunChild(
      command, bytes, {context.budget.deadline(), limits.unpacked_bytes, limits.child_memory});
  if (!result.ok() && result.status().code() == absl::StatusCode::kDeadlineExceeded) {
    return context.budget.CheckTime(what);
  }
  constexpr int kWarned = 3;  // exit code of qpdf
  if (result.ok() && (result->exit_code == 0 || result->exit_code == kWarned)) {
    return std::move(result->out);
  }
  const bool absent = !result.ok() && result.status().code() == absl::StatusCode::kNotFound;
  context.remarks.push_back(absl::StrCat(
      what, ": hidden text may have been read, and check boxes have not, because qpdf ",
      absent ? "is not installed: 'apt-get install qpdf'" : "cannot unpack the file"));
  return std::string();
}

// The file without text that no reader sees, and with check boxes as text; empty if it has neither,
// or qpdf cannot tell. Adds the notes on its pages.
absl::StatusOr<std::string> AsSeen(absl::string_view what, absl::string_view bytes,
                                   const std::vector<std::string>& pages, const Pictures& pictures,
                                   std::vector<PdfNote>* notes, ReadContext& context) {
  bool any_text = false;
  for (size_t i = 0; i < pages.size(); ++i) {
    const bool has_text = !absl::StripAsciiWhitespace(pages[i]).empty();
    any_text = any_text || (has_text && pictures.large.count(static_cast<int>(i) + 1) == 0);
  }
  if (!any_text) return std::string();
  const ReadLimits& limits = context.budget.limits();
  absl::StatusOr<std::string> qdf =
      RunQpdf(what,
              {limits.pdf_unpack_program, "--qdf", "--object-streams=disable", "--decrypt",
               kInputPath, "-"},
              bytes, context);
  if (!qdf.ok() || qdf->empty()) return qdf;
  *notes = FindPdfNotes(*qdf);
  const int hidden = HideInvisiblePdfText(pictures.large, &*qdf);
  context.left_out.hidden += hidden;
  if (DrawPdfButtons(&*qdf) > 0) {
    const absl::StatusOr<std::string> repaired =
        RunQpdf(what, {limits.pdf_repair_program, kInputPath}, *qdf, context);
    if (!repaired.ok() || !repaired->empty() || hidden == 0) return repaired;
  }
  return hidden > 0 ? std::move(*qdf) : std::string();
}

// Puts the notes at the ends of their pages, or counts them.
absl::Status AddNotes(absl::string_view what, const std::vector<PdfNote>& notes,
                      ReadContext& context, std::vector<std::string>* pages) {
  for (const PdfNote& note : notes) {
    if (note.hidden) {
      ++context.left_out.hidden;
    } else if (!context.options.comments) {
      ++context.left_out.comments;
    } else if (const auto at = static_cast<size_t>(note.page) - 1; at < pages->size()) {
      std::string& page = (*pages)[at];
      absl::StrAppend(&page, page.empty() || absl::EndsWith(page, "\n") ? "" : "\n", "[comment] ",
                      note.author, note.author.empty() ? "" : ": ", note.text, "\n");
      const auto bytes = static_cast<int64_t>(note.author.size() + note.text.size());
      const absl::Status left = context.budget.TakeBytes(what, bytes);
      if (!left.ok()) return left;
    }
  }
  return absl::OkStatus();
}

std::string WithPageMarks(const std::vector<std::string>& pages) {
  std::string marked;
  bool any_text = false;
  for (size_t i = 0; i < pages.size(); ++i) {
    any_text = any_text || !pages[i].empty();
    absl::StrAppend(&marked, i == 0 ? "" : "\n", "[page ", i + 1, "]\n", pages[i]);
  }
  return any_text ? marked : "";
}

}  // namespace

absl::StatusOr<std::string> ReadPdf(absl::string_view what, absl::string_view bytes,
                                    ReadContext& context) {
  absl::StatusOr<std::vector<std::string>> pages = LayoutPages(what, bytes, context.budget);
  if (!pages.ok()) return pages.status();
  absl::StatusOr<Pictures> pictures = FindPictures(what, bytes, context.budget);
  if (!pictures.ok()) return pictures.status();
  std::vector<int> scanned = ScannedPages(*pages, *pictures);
  const bool any_text = std::any_of(pages->begin(), pages->end(), [](const std::string& page) {
    return !absl::StripAsciiWhitespace(page).empty();
  });
  if (!any_text && scanned.empty()) {  // letters may be drawn as lines
    scanned.resize(pages->size());
    std::iota(scanned.begin(), scanned.end(), 1);
  }
  absl::StatusOr<std::string> recognized;  // `bytes` refers to it
  if (context.options.ocr && !scanned.empty()) {
    if (context.options.tell != nullptr) {
      context.options.tell(absl::StrCat(what, ": ocrmypdf reads ", scanned.size(),
                                        scanned.size() == 1 ? " page" : " pages", " that ",
                                        scanned.size() == 1 ? "is a picture" : "are pictures",
                                        ", which takes some seconds for each"));
    }
    recognized = WithRecognizedText(what, bytes, context);
    if (!recognized.ok()) return recognized.status();
    bytes = *recognized;
    pages = LayoutPages(what, bytes, context.budget);
    if (!pages.ok()) return pages.status();
    TellRecognizedPages(what, scanned, *pages, context);
    // On these pages, text that is not drawn is what the picture shows.
    pictures->large.insert(scanned.begin(), scanned.end());
  }
  std::vector<PdfNote> notes;
  const absl::StatusOr<std::string> seen = AsSeen(what, bytes, *pages, *pictures, &notes, context);
  if (!seen.ok()) return seen.status();
  if (!seen->empty()) {
    bytes = *seen;
    pages = LayoutPages(what, bytes, context.budget);
    if (!pages.ok()) return pages.status();
  }
  const absl::Status ordered = TakeBoxes(what, bytes, context, &*pages);
  if (!ordered.ok()) return ordered;
  TidyPdfPages(&*pages);
  TellScannedPages(what, ScannedPages(*pages, *pictures), context);
  const absl::Status noted = AddNotes(what, notes, context, &*pages);
  if (!noted.ok()) return noted;
  const std::string text = WithPageMarks(*pages);
  if (!text.empty()) return text;
  context.incomplete = true;
  context.remarks.clear();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " has ", pages->size(), pages->size() == 1 ? " page" : " pages", " but no text",
      context.options.ocr ? ", and ocrmypdf found none either"
                          : ": it is probably scanned. --ocr reads such pages by ocrmypdf"));
}

}  // namespace annulus::client
