#include "engine/text/stages/pattern.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/stages/text_stage.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kMaxLiteralBytes = 1024;

class LiteralScanner : public RangeScanner {
 public:
  explicit LiteralScanner(const std::string* literal) : literal_(*literal) {}

  absl::Status Push(absl::string_view text, bool end, Sink sink) override {
    ANNULUS_ASSIGN_OR_RETURN(const bool enough, held_.Add(text, end));
    if (!enough) return absl::OkStatus();
    const absl::string_view view = held_.view();
    size_t done = 0;
    const auto gap = [&](size_t until) {
      return until > done ? sink(view.substr(done, until - done), false) : absl::OkStatus();
    };
    for (size_t at = Find(view, 0); at != absl::string_view::npos; at = Find(view, done)) {
      ANNULUS_RETURN_IF_ERROR(gap(at));
      ANNULUS_RETURN_IF_ERROR(sink(view.substr(at, literal_.size()), true));
      done = at + literal_.size();
    }
    size_t decided = view.size();
    if (!end) {
      decided -= std::min(view.size() - done, literal_.size() - 1);
      while (decided > done && decided < view.size() && IsUtf8Continuation(view[decided])) {
        --decided;
      }
    }
    ANNULUS_RETURN_IF_ERROR(gap(decided));
    held_.Drop(decided);
    return absl::OkStatus();
  }

 private:
  // The C library searches in linear time.
  size_t Find(absl::string_view view, size_t from) const {
    const void* const found =
        memmem(view.data() + from, view.size() - from, literal_.data(), literal_.size());
    if (found == nullptr) return absl::string_view::npos;
    return static_cast<size_t>(static_cast<const char*>(found) - view.data());
  }

  absl::string_view literal_;
  HeldText held_;
};

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

Pattern Pattern::FromLiteral(absl::string_view literal) { return Pattern(std::string(literal)); }

std::unique_ptr<RangeScanner> Pattern::NewScanner(WorkMeter* work) const {
  if (const Regex* regex = std::get_if<Regex>(&what_)) {
    return std::make_unique<RegexScanner>(regex, work);
  }
  return std::make_unique<LiteralScanner>(&std::get<std::string>(what_));
}

}  // namespace annulus
