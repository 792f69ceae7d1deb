#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_STRING_PATTERN_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_STRING_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/grammar/compiler/machine_builder.h"
#include "engine/grammar/compiler/regex_tree.h"

namespace annulus {

// Most states of a pattern that is combined with others or with bounds of the length.
inline constexpr size_t kMaxPatternStates = 10000;

// Adds what reads the inside of a string, in this spelling, that matches every pattern (at least
// one), has between `least` and `most` characters, and goes on at `next`. More than one condition
// is made one by building the product of deterministic automata, so counts are written out there:
// the builder fails with INVALID_ARGUMENT if that takes more than kMaxPatternStates.
NodeId EmitPatterns(const std::vector<RegexTree>& patterns, uint32_t least, uint32_t most,
                    Spelling spelling, NodeId next, MachineBuilder* builder);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_STRING_PATTERN_H_
