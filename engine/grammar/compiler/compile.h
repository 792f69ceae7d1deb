#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_COMPILE_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_COMPILE_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/api/output.h"
#include "engine/base/memory_grant.h"
#include "engine/base/work_meter.h"
#include "engine/grammar/machine.h"
#include "engine/grammar/token_trie.h"

namespace annulus {

inline constexpr size_t kMaxSchemaBytes = size_t{1} << 20;
inline constexpr size_t kMaxChoices = 10000;
// For the meter of one compilation: about 100 ms of one core at the most.
inline constexpr int64_t kCompileSteps = 400'000;

// Compiles a constraint to a machine from every state of which some text leads to an end.
// `bytes`: those for which the vocabulary has a token of their own (TokenTrie::single_bytes).
// `tokens`: the vocabulary, for the marks of OutputConstraint::answer that are tokens; null: none
// is.
//
// INVALID_ARGUMENT for a constraint that is malformed, not supported (with the path of the
// keyword), too large, ambiguous beyond kMaxReadings, that no text satisfies, or that needs a byte
// without a token; then no vocabulary state could be without a continuation. Errors of `work` and
// `memory` unchanged; `memory` is asked for all that compiling takes at the same time. Immutable
// result, so it may be shared by threads.
absl::StatusOr<std::shared_ptr<const Machine>> CompileConstraint(const OutputConstraint& constraint,
                                                                 const std::bitset<256>& bytes,
                                                                 WorkMeter* work,
                                                                 MemoryGrant* memory,
                                                                 const TokenTrie* tokens = nullptr);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_COMPILE_H_
