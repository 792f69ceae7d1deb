#include "client/read/pdf.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/format/text.h"
#include "client/read/child.h"
#include "client/read/pdf_boxes.h"
#include "client/read/pdf_tidy.h"

namespace annulus::client {
namespace {

constexpr int kCannotOpen = 1;  // exit codes of pdftotext
constexpr int kNotPermitted = 3;

absl::Status Explained(const absl::Status& failure, absl::string_view what, ReadBudget& budget) {
  switch (failure.code()) {
    case absl::StatusCode::kNotFound:
      return absl::FailedPreconditionError(
          absl::StrCat("reading ", what,
                       " takes pdftotext, which is not installed: 'apt-get install poppler-utils', "
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

// The pages as they stand. pdftotext ends every page by a form feed.
absl::StatusOr<std::vector<std::string>> LayoutPages(absl::string_view what,
                                                     absl::string_view bytes, ReadBudget& budget) {
  const absl::StatusOr<std::string> text =
      RunPoppler(what,
                 {budget.limits().pdf_program, "-layout", "-enc", "UTF-8", "-eol", "unix",
                  kInputPath, "-"},
                 bytes, budget);
  if (!text.ok()) return text.status();
  std::vector<std::string> pages = absl::StrSplit(*text, '\f');
  if (absl::StripAsciiWhitespace(pages.back()).empty()) pages.pop_back();
  return pages;
}

// Replaces the pages that are to be read in reading order.
absl::Status TakeReadingOrder(absl::string_view what, absl::string_view bytes,
                              ReadContext& context, std::vector<std::string>* pages) {
  if (context.options.pdf == PdfOrder::kLayout) return absl::OkStatus();
  const absl::StatusOr<std::string> boxes =
      RunPoppler(what,
                 {context.budget.limits().pdf_program, "-bbox-layout", "-enc", "UTF-8", kInputPath,
                  "-"},
                 bytes, context.budget);
  if (!boxes.ok()) return boxes.status();
  const absl::StatusOr<std::vector<PdfPage>> parsed = ParsePdfBoxes(what, *boxes, context.budget);
  if (!parsed.ok()) return parsed.status();
  for (size_t i = 0; i < std::min(pages->size(), parsed->size()); ++i) {
    const PdfPage& page = (*parsed)[i];
    if (page.empty()) continue;
    if (context.options.pdf == PdfOrder::kReading || HasColumns(page)) {
      (*pages)[i] = ReadingText(page);
    }
  }
  return absl::OkStatus();
}

// Numbers such as "2 to 10 and 14".
std::string Ranges(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    parts.push_back(end == i ? absl::StrCat(numbers[i])
                             : absl::StrCat(numbers[i], " to ", numbers[end]));
    i = end + 1;
  }
  constexpr size_t kMostShown = 20;
  if (parts.size() > kMostShown) {
    const size_t more = parts.size() - kMostShown;
    parts.resize(kMostShown);
    return absl::StrCat(absl::StrJoin(parts, ", "), " and ", more, " more");
  }
  if (parts.size() == 1) return parts[0];
  const std::string last = parts.back();
  parts.pop_back();
  return absl::StrCat(absl::StrJoin(parts, ", "), " and ", last);
}

// Says which pages show a picture and hold no text. Blank pages are no fault.
absl::Status TellScannedPages(absl::string_view what, absl::string_view bytes,
                              const std::vector<std::string>& pages, ReadContext& context) {
  std::set<int> empty;
  for (size_t i = 0; i < pages.size(); ++i) {
    if (absl::StripAsciiWhitespace(pages[i]).empty()) empty.insert(static_cast<int>(i) + 1);
  }
  if (empty.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> list = RunPoppler(
      what, {context.budget.limits().pdf_images_program, "-list", kInputPath}, bytes,
      context.budget);
  if (!list.ok()) return list.status();
  std::set<int> scanned;
  for (const absl::string_view line : absl::StrSplit(*list, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int page = 0;
    if (words.empty() || !absl::SimpleAtoi(words[0], &page)) continue;
    if (empty.count(page) > 0) scanned.insert(page);
  }
  if (scanned.empty()) return absl::OkStatus();
  context.incomplete = true;
  context.remarks.push_back(absl::StrCat(
      what, ": ", scanned.size() == 1 ? "page " : "pages ",
      Ranges({scanned.begin(), scanned.end()}), scanned.size() == 1 ? " shows" : " show",
      " a picture and ", scanned.size() == 1 ? "holds" : "hold",
      " no text, so nothing of ", scanned.size() == 1 ? "it" : "them",
      " is read. Add a layer of text first, for example by ocrmypdf IN.pdf OUT.pdf"));
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
  const absl::Status ordered = TakeReadingOrder(what, bytes, context, &*pages);
  if (!ordered.ok()) return ordered;
  TidyPdfPages(&*pages);
  const std::string text = WithPageMarks(*pages);
  if (text.empty()) {
    context.incomplete = true;
    return absl::InvalidArgumentError(absl::StrCat(
        what, " has ", pages->size(), pages->size() == 1 ? " page" : " pages",
        " but no text: it is probably scanned. Add a layer of text first, for example by "
        "ocrmypdf IN.pdf OUT.pdf"));
  }
  const absl::Status told = TellScannedPages(what, bytes, *pages, context);
  if (!told.ok()) return told;
  return text;
}

}  // namespace annulus::client
