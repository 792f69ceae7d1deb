#ifndef ANNULUS_KERNELS_OPS_SAMPLING_H_
#define ANNULUS_KERNELS_OPS_SAMPLING_H_

#include <cstdint>
#include <span>

#include "kernels/base/candidates.h"
#include "kernels/base/logit_edits.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// How to choose the token of one row. Tokens that are not in `allowed` are left out. The logits of
// the others are first adjusted by `penalties`, `edits` and `seen`, then filtered by temperature,
// top_k, top_p and min_p, in that order.
struct SampleRow {
  float temperature = 0;  // 0: greedy; ties go to the lowest id, other filters are ignored
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // (0, 1]; 1: off
  float min_p = 0;        // [0, 1]; 0: off
  double uniform = 0;     // the random number that decides the draw, in [0, 1)

  Penalties penalties;
  // Tokens to adjust with AdjustedLogit: ascending, each at most once.
  std::span<const LogitEdit> edits;
  // The prompt's tokens that have no edit, as a bitmap: bit t % 32 of word t / 32 stands for token
  // t. Their logits are adjusted with a count of 0 and no bias. Either empty or
  // SeenWords(vocabulary) words. Bits beyond the vocabulary and bits of tokens with an edit must be
  // 0. A bitmap, so that the cost does not grow with the length of the document.
  std::span<const uint32_t> seen;
  // The tokens that may be chosen, as a bitmap of the same form: either empty, which allows all, or
  // SeenWords(vocabulary) words. Bits beyond the vocabulary must be 0.
  std::span<const uint32_t> allowed;
};

// Words of SampleRow::seen and allowed for a vocabulary of this size.
constexpr int64_t SeenWords(int64_t vocabulary) { return (vocabulary + 31) / 32; }

// Returned in place of a token id if there is none to choose.
inline constexpr int32_t kNoUsableLogit = -1;  // no logit is above -inf
// edits or `allowed` exclude every token whose logit is above -inf
inline constexpr int32_t kAllExcluded = -2;

// Chooses a token by the steps of kernels/base/candidates.h: ToWeights, KeepTopK, KeepTopP,
// KeepMinP, Draw. `candidates` must be ordered by id, none NaN or +inf and at least one above -inf;
// their contents are unspecified afterwards.
int32_t ChooseToken(std::span<Candidate> candidates, const SampleRow& how);

// Reads and adjusts the logits, then calls ChooseToken. Returns kNoUsableLogit or kAllExcluded if
// no token can be chosen. `workspace` has as many entries as `logits`; its contents do not matter.
int32_t ChooseFrom(std::span<const float> logits, const SampleRow& how,
                   std::span<Candidate> workspace);

// Chooses one token for each row of logits, like ChooseFrom. All tables compute the same float32
// adjusted logits and weights. Sums of weights are float64, in any fixed order, so tables may
// differ when a draw or the edge of top_p falls within the rounding of those sums (about 2^-50 of
// the total).
//
// FLOPs: one float64 exp per logit. Bytes: reads a row about 5 times, about 6 times more for each
// of top_k, top_p and the draw after them, and once more for each of `seen` and `allowed`. In each
// call a device with its own memory also receives 88 bytes per row, 12 per edit and vocabulary / 8
// for each of `seen` and `allowed`. Edits grow with the answer and the biases, not with the prompt,
// so a row takes at most 12 + 2 / 8 bytes per token of the vocabulary.
struct SampleParams {
  MatrixView logits;                // [rows, vocabulary]; contents unspecified afterwards
  std::span<const SampleRow> rows;  // [rows]
  int32_t* tokens = nullptr;        // [rows], AllocateHost memory; valid once the stream is done
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_SAMPLING_H_
