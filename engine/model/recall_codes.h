#ifndef ANNULUS_ENGINE_MODEL_RECALL_CODES_H_
#define ANNULUS_ENGINE_MODEL_RECALL_CODES_H_

#include <array>
#include <cstdint>
#include <vector>

namespace annulus {

// Token ids of the builtin recall model: a byte is its own id, and one id ends a text.
inline constexpr int kRecallVocabulary = 257;
inline constexpr int kRecallEndOfText = 256;

// How the recall model writes a token where it compares contexts: two entries of +1 or -1 among
// twelve. These are roots of the lattice D12 (Conway and Sloane, "Sphere Packings, Lattices and
// Groups", ch. 4), so a code has the product 2 with itself and at most 1 with any other. All
// entries are 0 or of one size, and all codes have one length: no rounding can favour one of them.
// Letters of running text use the first five coordinates, capitals and digits the other seven:
// records that differ in kind then differ in whole channels, which is what the block summaries of
// sparse attention can see.
inline constexpr int kContextCodeSize = 12;
using ContextCode = std::array<int8_t, kContextCodeSize>;

// How the recall model writes the token that it predicts: sixteen signs. The bytes are the
// Nordstrom-Robinson code of 256 words at Hamming distance 6 or more (Nordstrom and Robinson 1967),
// built as eight quadratic forms plus all affine ones (Kerdock 1972), so a word has the product 16
// with itself and at most 4 with that of another byte; a mean of a few words is still nearest to
// one of them. Bytes b and b + 128 have opposite words. The end of text has at most 8 with any
// byte.
inline constexpr int kAnswerCodeSize = 16;
using AnswerCode = std::array<int8_t, kAnswerCodeSize>;

// Both by token id, [kRecallVocabulary].
std::vector<ContextCode> ContextCodes();
std::vector<AnswerCode> AnswerCodes();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_RECALL_CODES_H_
