#ifndef ANNULUS_KERNELS_OPS_SAMPLING_H_
#define ANNULUS_KERNELS_OPS_SAMPLING_H_

#include <cstdint>
#include <span>

#include "kernels/base/candidates.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// How the token of one row is chosen, in this order.
struct SampleRow {
  float temperature = 0;  // 0: the greatest logit, of equal ones the lowest id; the rest is unused
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // (0, 1]; 1: off
  float min_p = 0;        // [0, 1]; 0: off
  double uniform = 0;     // the random number, in [0, 1)
};

// The token that the steps of kernels/base/candidates.h choose out of logits: ToWeights, KeepTopK,
// KeepTopP, KeepMinP, Draw. At least one is above -inf, none is NaN or +inf. `candidates` are
// ordered by id; what is left in them is unspecified.
int32_t ChooseToken(std::span<Candidate> candidates, const SampleRow& how);

// Chooses one token for each row of logits, as ChooseToken does once ReadLogit has read them. The
// weights are the same float32 numbers; sums over them are float64 in any fixed order. So where
// the number drawn falls within their rounding (about 2^-50 of the whole) of the edge between two
// tokens, either may be chosen, and so at the edge of top_p. A row without a logit above -inf gives
// -1. FLOPs: one exp in float64 per logit. Bytes: a row some 5 times if only its weights are summed
// and some 6 times more for each of top_k, top_p and a draw from what they keep.
struct SampleParams {
  MatrixView logits;                // [rows, vocabulary]; their contents are unspecified afterwards
  std::span<const SampleRow> rows;  // [rows]
  int32_t* tokens = nullptr;  // [rows] of Backend::AllocateHost; there once the stream is done
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_SAMPLING_H_
