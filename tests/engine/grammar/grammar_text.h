#ifndef ANNULUS_TESTS_ENGINE_GRAMMAR_GRAMMAR_TEXT_H_
#define ANNULUS_TESTS_ENGINE_GRAMMAR_GRAMMAR_TEXT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/compiler/compile.h"
#include "engine/grammar/matcher.h"

namespace annulus::testing {

inline OutputConstraint SchemaConstraint(absl::string_view schema) {
  return {OutputConstraint::Kind::kJsonSchema, std::string(schema), {}};
}
inline OutputConstraint RegexConstraint(absl::string_view pattern) {
  return {OutputConstraint::Kind::kRegex, std::string(pattern), {}};
}
inline OutputConstraint JsonObjectConstraint() {
  return {OutputConstraint::Kind::kJsonObject, "", {}};
}
inline OutputConstraint ChoicesConstraint(std::vector<std::string> choices) {
  return {OutputConstraint::Kind::kChoices, "", std::move(choices)};
}

// Compiles for a vocabulary with all bytes, and with the limits of a request.
absl::StatusOr<std::shared_ptr<const Machine>> Compile(const OutputConstraint& constraint);

// A vocabulary of the 256 bytes and `more` tokens, whose ids come after; the last id ends the text.
struct SmallVocabulary {
  explicit SmallVocabulary(const std::vector<std::string>& more = {});
  std::vector<std::string> tokens;
  std::shared_ptr<const TokenTrie> trie;
  int32_t end = 0;
};

std::shared_ptr<GrammarCache> NewCache(const OutputConstraint& constraint,
                                       const SmallVocabulary& vocabulary);

// Whether `text` may be a whole answer, read byte by byte.
bool Accepts(const OutputConstraint& constraint, absl::string_view text);
// The same for many texts of one constraint. The matcher must be at its beginning.
bool Accepts(GrammarMatcher matcher, absl::string_view text);

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_GRAMMAR_GRAMMAR_TEXT_H_
