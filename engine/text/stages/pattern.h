#ifndef ANNULUS_ENGINE_TEXT_STAGES_PATTERN_H_
#define ANNULUS_ENGINE_TEXT_STAGES_PATTERN_H_

#include <memory>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json_node.h"
#include "engine/text/stages/range_scanner.h"
#include "engine/text/stages/regex.h"

namespace annulus {

// What `Split` and `Replace` search for: {"String": s} or {"Regex": r}. Immutable and thread-safe.
class Pattern {
 public:
  static absl::StatusOr<Pattern> Parse(const JsonNode& node);
  static absl::StatusOr<Pattern> FromRegex(absl::string_view regex);
  static Pattern FromLiteral(absl::string_view literal);  // not empty

  // Creates a scanner that finds matches in texts and counts its steps in `work`. The pattern and
  // `work` must outlive the scanner.
  std::unique_ptr<RangeScanner> NewScanner(WorkMeter* work) const;

 private:
  explicit Pattern(std::variant<std::string, Regex> what) : what_(std::move(what)) {}

  std::variant<std::string, Regex> what_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_PATTERN_H_
