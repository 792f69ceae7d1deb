#ifndef ANNULUS_ENGINE_SAMPLING_VALIDATE_H_
#define ANNULUS_ENGINE_SAMPLING_VALIDATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/api/request.h"
#include "engine/base/error_payloads.h"

namespace annulus {

// The most alternatives to a token whose log probabilities can be asked for.
inline constexpr int32_t kMaxLogprobs = 20;

// Checks every field against the ranges in engine/api/request.h. INVALID_ARGUMENT for violations:
// the payload kFieldPayload names the field ("sampling.top_p"), and the message has the given value
// and the allowed range; several are joined (JoinFieldErrors). Ids must be in [0, vocabulary).
absl::Status ValidateSampling(const SamplingParams& params, int32_t vocabulary);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SAMPLING_VALIDATE_H_
