#ifndef ANNULUS_ENGINE_TEXT_PATTERN_H_
#define ANNULUS_ENGINE_TEXT_PATTERN_H_

#include <cstddef>
#include <string>
#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/json_node.h"
#include "engine/text/regex.h"

namespace annulus {

// What `Split` and `Replace` look for: {"String": s} or {"Regex": r}. Immutable and thread-safe.
class Pattern {
 public:
  static absl::StatusOr<Pattern> Parse(const JsonNode& node);
  static absl::StatusOr<Pattern> FromRegex(absl::string_view regex);

  // Calls `each(begin, end, is_match)` for ranges that cover `text` in order, none empty; stops at
  // an error. `text` must be valid UTF-8.
  absl::Status ForEachRange(absl::string_view text,
                            absl::FunctionRef<absl::Status(size_t, size_t, bool)> each) const;

 private:
  explicit Pattern(std::variant<std::string, Regex> what) : what_(std::move(what)) {}

  absl::Status ForEachMatch(absl::string_view text,
                            absl::FunctionRef<absl::Status(size_t, size_t)> each) const;

  std::variant<std::string, Regex> what_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_PATTERN_H_
