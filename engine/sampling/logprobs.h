#ifndef ANNULUS_ENGINE_SAMPLING_LOGPROBS_H_
#define ANNULUS_ENGINE_SAMPLING_LOGPROBS_H_

#include <cstdint>
#include <span>

#include "engine/api/result.h"

namespace annulus {

// Returns the natural log-probability of `token` under softmax(logits), the model's own
// distribution before bias, penalties and temperature. Also returns the `alternatives` most
// probable tokens, descending, ties by ascending id; `token` may be one of them. Leaves out tokens
// of probability 0. At least one logit must be greater than -inf.
TokenLogprob LogprobOf(std::span<const float> logits, int32_t token, int32_t alternatives);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SAMPLING_LOGPROBS_H_
