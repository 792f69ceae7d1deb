#ifndef ANNULUS_KERNELS_OPS_SAMPLING_H_
#define ANNULUS_KERNELS_OPS_SAMPLING_H_

#include <cstdint>
#include <span>

#include "kernels/base/candidates.h"
#include "kernels/base/logit_edits.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// How the token of one row is chosen: first logits are adjusted, then filtered in the order of
// these fields.
struct SampleRow {
  float temperature = 0;  // 0: the greatest logit, of equal ones the lowest id; the rest is unused
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // (0, 1]; 1: off
  float min_p = 0;        // [0, 1]; 0: off
  double uniform = 0;     // the random number, in [0, 1)

  Penalties penalties;
  // AdjustedLogit of these tokens: ascending, each once.
  std::span<const LogitEdit> edits;
  // The prompt's other tokens, AdjustedLogit with a count of 0 and no bias: bit t % 32 of word
  // t / 32 for token t. Empty, or SeenWords(vocabulary) words; bits of tokens with an edit and
  // bits beyond the vocabulary are 0. So a document costs the same however many tokens it has.
  std::span<const uint32_t> seen;
};

constexpr int64_t SeenWords(int64_t vocabulary) { return (vocabulary + 31) / 32; }

// Instead of a token.
inline constexpr int32_t kNoUsableLogit = -1;  // none is above -inf
inline constexpr int32_t kAllExcluded = -2;    // edits exclude all that are

// The token that the steps of kernels/base/candidates.h choose out of logits: ToWeights, KeepTopK,
// KeepTopP, KeepMinP, Draw. At least one is above -inf, none is NaN or +inf. `candidates` are
// ordered by id; what is left in them is unspecified.
int32_t ChooseToken(std::span<Candidate> candidates, const SampleRow& how);

// ChooseToken once the logits are read and adjusted, or one of the two values above. `workspace`
// has as many entries as `logits`; its contents do not matter.
int32_t ChooseFrom(std::span<const float> logits, const SampleRow& how,
                   std::span<Candidate> workspace);

// Chooses one token for each row of logits, as ChooseFrom does. Adjusted logits and weights are the
// same float32 numbers; sums over them are float64 in any fixed order. So where the number drawn
// falls within their rounding (about 2^-50 of the whole) of the edge between two tokens, either may
// be chosen, and so at the edge of top_p.
//
// FLOPs: one exp in float64 per logit. Bytes: a row some 5 times if only its weights are summed
// and some 6 times more for each of top_k, top_p and a draw from what they keep; once more at most
// for `seen`. What each call brings to a device of its own: 72 bytes for a row, 12 for each edit
// and vocabulary / 8 for `seen`. So it grows with what was generated and with biases, not with the
// prompt, and is at most 12 + 1 / 8 bytes for each token of the vocabulary.
struct SampleParams {
  MatrixView logits;                // [rows, vocabulary]; their contents are unspecified afterwards
  std::span<const SampleRow> rows;  // [rows]
  int32_t* tokens = nullptr;  // [rows] of Backend::AllocateHost; there once the stream is done
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_SAMPLING_H_
