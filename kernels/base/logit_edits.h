#ifndef ANNULUS_KERNELS_BASE_LOGIT_EDITS_H_
#define ANNULUS_KERNELS_BASE_LOGIT_EDITS_H_

// Adjusts a row's logits before a token is chosen. Constexpr, so that GPU kernels run the same code
// as the host: the same float32 operations in the same order.

#include <cstdint>
#include <limits>

#include "kernels/base/candidates.h"

namespace annulus {

inline constexpr float kExcludedLogit = -std::numeric_limits<float>::infinity();

// Penalties of one row. All finite.
struct Penalties {
  float repetition = 1;  // > 0; 1: off
  float frequency = 0;
  float presence = 0;
};

// The adjustment of one token's logit.
struct LogitEdit {
  int32_t token = 0;
  int32_t count = -1;  // times in the answer; 0: only in the prompt; -1: in neither, no penalty
  float bias = 0;      // finite, added first; kExcludedLogit: never choose this token
};

// Clamps to finite values, so that an adjustment never excludes a token. (Excluded tokens never get
// here.)
constexpr float KeepFinite(float logit) {
  constexpr float kMost = std::numeric_limits<float>::max();
  return logit > kMost ? kMost : (logit < -kMost ? -kMost : logit);
}

// Adjusts one logit. Reads it with ReadLogit and adds the bias. If the token was seen (count >= 0),
// divides a positive logit by the repetition penalty and multiplies any other by it, once, whatever
// the count. Then subtracts the frequency penalty times the count and, if the token is in the
// answer, the presence penalty. Sources: engine/sampling/sampler.h.
constexpr float AdjustedLogit(float logit, const LogitEdit& edit, const Penalties& penalties) {
  float value = ReadLogit(logit);
  if (value == kExcludedLogit || edit.bias == kExcludedLogit) return kExcludedLogit;
  value = KeepFinite(value + edit.bias);
  if (edit.count < 0) return value;
  value = value > 0 ? value / penalties.repetition : value * penalties.repetition;
  value -= penalties.frequency * static_cast<float>(edit.count);
  if (edit.count > 0) value -= penalties.presence;
  return KeepFinite(value);
}

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_LOGIT_EDITS_H_
