#ifndef ANNULUS_ENGINE_SAMPLING_LOGPROBS_H_
#define ANNULUS_ENGINE_SAMPLING_LOGPROBS_H_

#include <cstdint>
#include <span>

#include "engine/api/result.h"

namespace annulus {

// Natural log-probability of `token` under softmax(logits), the model's own distribution: before
// bias, penalties and temperature. Beside it the `alternatives` most probable tokens, descending,
// equal ones by ascending id; `token` may be among them. Tokens of probability 0 are left out.
// At least one logit is greater than -inf.
TokenLogprob LogprobOf(std::span<const float> logits, int32_t token, int32_t alternatives);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SAMPLING_LOGPROBS_H_
