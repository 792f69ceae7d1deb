#include "server/http/files/multipart_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

constexpr size_t kLongestBoundary = 70;  // RFC 2046, 5.1.1
// Blanks that may stand behind a boundary.
constexpr size_t kMostBlanks = 64;

absl::Status NotAForm(absl::string_view message) {
  return FieldError("", absl::StrCat("the body is not a form (multipart/form-data): ", message));
}

// Takes a parameter of a header from the front of `rest`: `; name="value"`. False if there is none,
// or one that cannot be read, which is left in `rest`.
bool TakeParameter(absl::string_view& rest, std::string& name, std::string& value) {
  rest = absl::StripLeadingAsciiWhitespace(rest);
  if (!absl::ConsumePrefix(&rest, ";")) return false;
  const size_t equals = rest.find('=');
  if (equals == absl::string_view::npos) return false;
  name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(rest.substr(0, equals)));
  absl::string_view left = absl::StripLeadingAsciiWhitespace(rest.substr(equals + 1));
  value.clear();
  if (absl::ConsumePrefix(&left, "\"")) {
    while (!left.empty() && left.front() != '"') {
      if (left.front() == '\\' && left.size() > 1) left.remove_prefix(1);
      value.push_back(left.front());
      left.remove_prefix(1);
    }
    if (!absl::ConsumePrefix(&left, "\"")) return false;
  } else {
    const size_t end = std::min(left.find(';'), left.size());
    value = std::string(absl::StripAsciiWhitespace(left.substr(0, end)));
    left.remove_prefix(end);
    if (value.empty()) return false;
  }
  rest = left;
  return true;
}

// Reads `form-data; name="file"; filename="a.txt"`.
absl::Status ReadPartDisposition(absl::string_view value, FormPart& part) {
  absl::string_view rest = value;
  if (!absl::ConsumePrefix(&rest, "form-data")) {
    return NotAForm("a part has another Content-Disposition than form-data");
  }
  std::string name, parameter;
  while (TakeParameter(rest, name, parameter)) {
    if (name == "name") part.name = parameter;
    if (name == "filename") part.filename = parameter;
  }
  if (!absl::StripAsciiWhitespace(rest).empty()) {
    return NotAForm("a part's Content-Disposition cannot be read");
  }
  return absl::OkStatus();
}

absl::Status ReadPartHeader(absl::string_view line, FormPart& part) {
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos) return NotAForm("a part has a header without a colon");
  const std::string name = absl::AsciiStrToLower(line.substr(0, colon));
  const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
  if (name == "content-disposition") {
    if (!part.name.empty()) return NotAForm("a part has two headers Content-Disposition");
    return ReadPartDisposition(value, part);
  }
  if (name == "content-type") {
    if (absl::StartsWithIgnoreCase(value, "multipart/")) return NotAForm("a part has parts itself");
    part.content_type = std::string(value);
  }
  if (name == "content-transfer-encoding" && !absl::EqualsIgnoreCase(value, "binary") &&
      !absl::EqualsIgnoreCase(value, "8bit") && !absl::EqualsIgnoreCase(value, "7bit")) {
    return NotAForm("a part has a Content-Transfer-Encoding; send its bytes as they are");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> MultipartReader::BoundaryOf(absl::string_view content_type) {
  const size_t end = std::min(content_type.find(';'), content_type.size());
  const absl::string_view type = absl::StripAsciiWhitespace(content_type.substr(0, end));
  if (!absl::EqualsIgnoreCase(type, "multipart/form-data")) {
    return absl::InvalidArgumentError(
        "the body must be a form: send \"Content-Type: multipart/form-data; boundary=...\"");
  }
  absl::string_view rest = content_type.substr(end);
  std::string name, value;
  while (TakeParameter(rest, name, value)) {
    if (name == "boundary" && !value.empty() && value.size() <= kLongestBoundary) return value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Content-Type has no boundary of 1 to ", kLongestBoundary, " characters"));
}

// The first boundary may begin the body: it is found as if a line ended before it.
MultipartReader::MultipartReader(absl::string_view boundary, FormTaker& taker)
    : delimiter_(absl::StrCat("\r\n--", boundary)), taker_(taker), kept_("\r\n") {}

absl::Status MultipartReader::Take(absl::string_view bytes) {
  kept_.append(bytes.data(), bytes.size());
  while (true) {
    ANNULUS_ASSIGN_OR_RETURN(const bool went_on, ReadOn());
    if (!went_on) break;
  }
  kept_.erase(0, std::exchange(begin_, 0));
  return absl::OkStatus();
}

absl::StatusOr<bool> MultipartReader::ReadOn() {
  switch (stage_) {
    case Stage::kPreamble:
    case Stage::kValue:
      return ReadUpToBoundary();
    case Stage::kBehindBoundary:
      return ReadBehindBoundary();
    case Stage::kHeaders:
      return ReadHeaders();
    case Stage::kEpilogue:
      Drop(kept().size());
      return false;
  }
  return false;
}

absl::Status MultipartReader::Give(size_t size) {
  const absl::string_view value = kept().substr(0, size);
  const bool is_value = stage_ == Stage::kValue && !value.empty();
  const absl::Status status = is_value ? taker_.OnData(value) : absl::OkStatus();
  Drop(size);
  return status;
}

absl::StatusOr<bool> MultipartReader::ReadUpToBoundary() {
  const size_t found = kept().find(delimiter_);
  if (found == absl::string_view::npos) {
    // The end may be the beginning of the boundary.
    const size_t sure = kept().size() - std::min(kept().size(), delimiter_.size() - 1);
    ANNULUS_RETURN_IF_ERROR(Give(sure));
    return false;
  }
  ANNULUS_RETURN_IF_ERROR(Give(found));
  if (stage_ == Stage::kValue) ANNULUS_RETURN_IF_ERROR(taker_.OnPartEnd());
  Drop(delimiter_.size());
  stage_ = Stage::kBehindBoundary;
  return true;
}

absl::StatusOr<bool> MultipartReader::ReadBehindBoundary() {
  const size_t blanks = std::min(kept().find_first_not_of(" \t"), kept().size());
  if (blanks > kMostBlanks) return NotAForm("a boundary has too many blanks behind it");
  const absl::string_view rest = kept().substr(blanks);
  if (rest.size() < 2) return false;
  if (absl::StartsWith(rest, "--") && blanks == 0) {
    stage_ = Stage::kEpilogue;
    return true;
  }
  if (!absl::StartsWith(rest, "\r\n")) return NotAForm("there is text behind a boundary");
  if (++parts_ > kMostParts)
    return NotAForm(absl::StrCat("it has more than ", kMostParts, " parts"));
  // The line's end stays: a part without headers has two in a row.
  Drop(blanks);
  stage_ = Stage::kHeaders;
  return true;
}

absl::StatusOr<bool> MultipartReader::ReadHeaders() {
  constexpr absl::string_view kEnd = "\r\n\r\n";
  const size_t end = kept().find(kEnd);
  if (std::min(end, kept().size()) > kMostHeaderBytes) {
    return NotAForm(absl::StrCat("a part has more than ", kMostHeaderBytes, " bytes of headers"));
  }
  if (end == absl::string_view::npos) return false;
  FormPart part;
  for (const absl::string_view line :
       absl::StrSplit(kept().substr(0, end), "\r\n", absl::SkipEmpty())) {
    ANNULUS_RETURN_IF_ERROR(ReadPartHeader(line, part));
  }
  if (part.name.empty()) return NotAForm("a part has no name");
  Drop(end + kEnd.size());
  ANNULUS_RETURN_IF_ERROR(taker_.OnPart(part));
  stage_ = Stage::kValue;
  return true;
}

absl::Status MultipartReader::Finish() const {
  return stage_ == Stage::kEpilogue ? absl::OkStatus()
                                    : NotAForm("it ends before its last boundary");
}

}  // namespace annulus::server
