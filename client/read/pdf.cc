#include "client/read/pdf.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/format/text.h"
#include "client/read/child.h"

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

// pdftotext ends every page by a form feed.
std::string WithPageMarks(absl::string_view text, int* pages) {
  std::vector<absl::string_view> parts = absl::StrSplit(text, '\f');
  if (absl::StripAsciiWhitespace(parts.back()).empty()) parts.pop_back();
  std::string marked;
  bool any_text = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    absl::string_view page = absl::StripTrailingAsciiWhitespace(parts[i]);
    while (absl::StartsWith(page, "\n")) page.remove_prefix(1);
    any_text = any_text || !page.empty();
    absl::StrAppend(&marked, i == 0 ? "" : "\n", "[page ", i + 1, "]\n", page,
                    page.empty() ? "" : "\n");
  }
  *pages = static_cast<int>(parts.size());
  return any_text ? marked : "";
}

}  // namespace

absl::StatusOr<std::string> ReadPdf(absl::string_view what, absl::string_view bytes,
                                    ReadBudget& budget) {
  const ReadLimits& limits = budget.limits();
  const ChildLimits child{budget.deadline(), budget.bytes_left(), limits.child_memory};
  const absl::StatusOr<ChildResult> result =
      RunChild({limits.pdf_program, "-layout", "-enc", "UTF-8", "-eol", "unix", kInputPath, "-"},
               bytes, child);
  if (!result.ok()) return Explained(result.status(), what, budget);
  if (result->exit_code != 0) return Failed(what, *result);
  if (absl::Status left = budget.TakeBytes(what, static_cast<int64_t>(result->out.size()));
      !left.ok()) {
    return left;
  }
  if (FindInvalidUtf8(result->out).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " gives text that is not valid UTF-8; it may be broken"));
  }
  int pages = 0;
  std::string text = WithPageMarks(result->out, &pages);
  if (!text.empty()) return text;
  return absl::InvalidArgumentError(absl::StrCat(
      what, " has ", pages, pages == 1 ? " page" : " pages",
      " but no text: it is probably scanned. Add a layer of text first, for example by "
      "ocrmypdf IN.pdf OUT.pdf"));
}

}  // namespace annulus::client
