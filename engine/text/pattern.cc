#include "engine/text/pattern.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kMaxLiteralBytes = 1024;  // keeps a plain search close to linear

}  // namespace

absl::StatusOr<Pattern> Pattern::Parse(const JsonNode& node) {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode literal, node.Find("String"));
  if (!literal.is_null()) {
    ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, literal.String());
    if (text.empty() || text.size() > kMaxLiteralBytes) {
      return literal.Error(
          absl::StrCat("a literal has 1..", kMaxLiteralBytes, " bytes, not ", text.size()));
    }
    return Pattern(std::string(text));
  }
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode expression, node.Find("Regex"));
  if (expression.is_null()) return node.Error("expected {\"String\": ...} or {\"Regex\": ...}");
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, expression.String());
  absl::StatusOr<Regex> regex = Regex::Compile(text);
  if (!regex.ok()) return expression.Error(regex.status().message());
  return Pattern(*std::move(regex));
}

absl::StatusOr<Pattern> Pattern::FromRegex(absl::string_view regex) {
  ANNULUS_ASSIGN_OR_RETURN(Regex compiled, Regex::Compile(regex));
  return Pattern(std::move(compiled));
}

absl::Status Pattern::ForEachMatch(absl::string_view text,
                                   absl::FunctionRef<absl::Status(size_t, size_t)> each) const {
  if (const Regex* regex = std::get_if<Regex>(&what_)) return regex->ForEachMatch(text, each);
  const std::string& literal = std::get<std::string>(what_);
  for (size_t at = text.find(literal); at != absl::string_view::npos;
       at = text.find(literal, at + literal.size())) {
    ANNULUS_RETURN_IF_ERROR(each(at, at + literal.size()));
  }
  return absl::OkStatus();
}

absl::Status Pattern::ForEachRange(
    absl::string_view text, absl::FunctionRef<absl::Status(size_t, size_t, bool)> each) const {
  size_t done = 0;
  ANNULUS_RETURN_IF_ERROR(ForEachMatch(text, [&](size_t begin, size_t end) {
    if (begin > done) ANNULUS_RETURN_IF_ERROR(each(done, begin, false));
    done = end;
    return each(begin, end, true);
  }));
  return done < text.size() ? each(done, text.size(), false) : absl::OkStatus();
}

}  // namespace annulus
