#ifndef ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_TOOLS_H_
#define ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_TOOLS_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// What an AnswerParser needs to know of a request's tools. Immutable and thread-safe.
class AnswerTools {
 public:
  // Upper bound of the heap bytes that Parse takes for definitions of `bytes` bytes.
  static constexpr size_t ParseBytes(size_t bytes) { return 64 * bytes; }

  // Reads definitions as Messages.tools has them: a JSON array of {"type": "function", "function":
  // {"name": .., "parameters": {..}}}, or of the inner objects alone. INVALID_ARGUMENT says which
  // one has no name, or one of more than 256 bytes, or one that an earlier tool has.
  static absl::StatusOr<std::shared_ptr<const AnswerTools>> Parse(absl::string_view json);

  bool Has(absl::string_view name) const { return tools_.contains(name); }
  bool empty() const { return tools_.empty(); }
  // Whether some definition is "strict": its arguments must satisfy its schema.
  bool any_strict() const { return any_strict_; }

  // Whether the parameter's schema allows no value but strings (and null). False for parameters
  // that the tool does not have.
  bool IsText(absl::string_view name, absl::string_view parameter) const;

 private:
  using Texts = absl::flat_hash_set<std::string>;  // parameters of which IsText is true

  absl::flat_hash_map<std::string, Texts> tools_;
  bool any_strict_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_TOOLS_H_
