#include "client/read/pdf/pdf_ocr.h"

#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/read/child.h"

namespace annulus::client {

absl::StatusOr<std::string> WithRecognizedText(absl::string_view what, absl::string_view bytes,
                                               ReadContext& context) {
  const ReadLimits& limits = context.budget.limits();
  const std::string& languages = context.options.ocr_languages;
  const auto begin = std::chrono::steady_clock::now();
  // ocrmypdf cannot open the descriptor by its path from its own children, but reads its standard
  // input.
  absl::StatusOr<ChildResult> result = RunChild(
      {"sh", "-c", "exec \"$0\" --skip-text --quiet --output-type pdf --language \"$1\" - - <&3",
       limits.pdf_ocr_program, languages.empty() ? "eng" : languages},
      bytes, {begin + limits.ocr_time, limits.unpacked_bytes, limits.ocr_memory});
  context.budget.AddTime(std::chrono::steady_clock::now() - begin);
  constexpr int kNoProgram = 127;  // exit code of sh
  if (result.ok() && result->exit_code == kNoProgram) {
    return absl::FailedPreconditionError(
        "--ocr needs ocrmypdf, which is not installed: 'apt-get install ocrmypdf'");
  }
  if (!result.ok() && result.status().code() == absl::StatusCode::kDeadlineExceeded) {
    return absl::DeadlineExceededError(absl::StrCat(
        what, " takes ocrmypdf longer than ",
        std::chrono::duration_cast<std::chrono::minutes>(limits.ocr_time).count(),
        " minutes; run it yourself, with ocrmypdf IN.pdf OUT.pdf, and give its output"));
  }
  if (!result.ok()) return result.status();
  if (result->exit_code != 0) {
    absl::string_view reason = absl::StripAsciiWhitespace(result->err);
    if (absl::StrContains(reason, "language data")) {
      return absl::FailedPreconditionError(
          absl::StrCat("tesseract lacks a language of --ocr-languages ", languages,
                       ": 'apt-get install tesseract-ocr-", languages.substr(0, 3),
                       "' adds one; 'tesseract --list-langs' lists those that it has"));
    }
    reason = reason.substr(reason.rfind('\n') + 1);
    return absl::InvalidArgumentError(absl::StrCat(what, " made ocrmypdf fail (exit code ",
                                                   result->exit_code, reason.empty() ? "" : "; ",
                                                   reason, "); without --ocr the rest is read"));
  }
  return std::move(result->out);
}

}  // namespace annulus::client
