#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_REGEX_TREE_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_REGEX_TREE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/compiler/character_class.h"
#include "engine/grammar/compiler/machine_builder.h"

namespace annulus {

inline constexpr uint32_t kMaxRegexRepeats = 100000;
inline constexpr int kMaxRegexDepth = 64;

// A parsed regular expression.
struct RegexTree {
  enum class Kind : uint8_t {
    kCharacter,  // one of `members`
    kSequence,   // all children, in order; of none: the empty text
    kChoice,     // one child
    kRepeat,     // children[0], `least` to `most` times (kUnbounded: no limit)
    kBegin,      // ^
    kEnd,        // $
  };
  Kind kind = Kind::kSequence;
  CharacterClass members;
  std::vector<RegexTree> children;
  uint32_t least = 0;
  uint32_t most = 0;
};

// What ParseRegex takes of the heap for each byte of a pattern, at the most.
inline constexpr size_t kRegexTreeBytes = 320;

// What a text must do to match.
enum class RegexMatch : uint8_t {
  kWhole,     // match from its beginning to its end
  kAnywhere,  // hold a match somewhere, as JSON schema's `pattern` asks
};

// Parses the common part of ECMAScript's and Python's syntax:
//   characters . [a-z] [^a-z] \d \w \s \D \W \S \n \r \t \f \v \0 \xHH \uHHHH \u{H...}
//   ( ) (?: ) (?<name> ) | * + ? {n} {n,} {n,m}, also followed by ? (which changes no language)
//   ^ and $ at the ends of the pattern or of its alternatives outside of groups
// \d and \w are ASCII; \s and . are ECMAScript's. The result has no kBegin or kEnd: for kAnywhere,
// ends without an anchor are open. INVALID_ARGUMENT, with the offset, for everything else
// (lookaround, back references, \b, \p), for a depth above kMaxRegexDepth, counts above
// kMaxRegexRepeats, and text that is not UTF-8. Takes time linear in the pattern.
absl::StatusOr<RegexTree> ParseRegex(absl::string_view pattern, RegexMatch match);

// Adds what reads a text that matches and then goes on at `next`.
NodeId EmitRegex(const RegexTree& tree, Spelling spelling, NodeId next, MachineBuilder* builder);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_REGEX_TREE_H_
