#ifndef ANNULUS_ENGINE_MODEL_MADE_RECALL_CODES_H_
#define ANNULUS_ENGINE_MODEL_MADE_RECALL_CODES_H_

#include <array>
#include <cstdint>
#include <vector>

namespace annulus {

// Token ids of the builtin recall model: a byte is its own id, and one more id ends a text.
inline constexpr int kRecallVocabulary = 257;
inline constexpr int kRecallEndOfText = 256;

// How the recall model encodes a token for comparing contexts: twelve entries, two of them +1 or
// -1. The codes are roots of the lattice D12 (Conway and Sloane, "Sphere Packings, Lattices and
// Groups", ch. 4), so the dot product of a code is 2 with itself and at most 1 with any other. All
// nonzero entries have the same magnitude and all codes the same length, so rounding cannot favour
// one of them. Lowercase text uses the first five coordinates, capitals and digits the other seven:
// records of different kinds then differ in whole channels, which block summaries of sparse
// attention can detect.
inline constexpr int kContextCodeSize = 12;
using ContextCode = std::array<int8_t, kContextCodeSize>;

// How the recall model encodes the token it predicts: sixteen signs. The bytes use the
// Nordstrom-Robinson code of 256 words at Hamming distance 6 or more (Nordstrom and Robinson 1967),
// built as eight quadratic forms plus all affine ones (Kerdock 1972). The dot product of a word is
// 16 with itself and at most 4 with another byte's, so the mean of a few words is still nearest to
// one of them. Bytes b and b + 128 have opposite words. The end of text has at most 8 with any
// byte.
inline constexpr int kAnswerCodeSize = 16;
using AnswerCode = std::array<int8_t, kAnswerCodeSize>;

// Both indexed by token id, [kRecallVocabulary].
std::vector<ContextCode> ContextCodes();
std::vector<AnswerCode> AnswerCodes();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_MADE_RECALL_CODES_H_
