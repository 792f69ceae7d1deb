#ifndef ANNULUS_KERNELS_BASE_LOGIT_EDITS_H_
#define ANNULUS_KERNELS_BASE_LOGIT_EDITS_H_

// What is done to a row's logits before a token is chosen. Constexpr, so that kernels of a device
// compute it by the same code as the host: the same float32 operations in the same order.

#include <cstdint>
#include <limits>

#include "kernels/base/candidates.h"

namespace annulus {

inline constexpr float kExcludedLogit = -std::numeric_limits<float>::infinity();

// Of one row. All finite.
struct Penalties {
  float repetition = 1;  // > 0; 1: off
  float frequency = 0;
  float presence = 0;
};

// What is done to the logit of one token.
struct LogitEdit {
  int32_t token = 0;
  int32_t count = -1;  // times in the answer; 0: in the prompt alone; -1: in neither, no penalty
  float bias = 0;      // finite, added first; kExcludedLogit: the token is never chosen
};

// An adjustment never excludes a token and never includes an excluded one.
constexpr float KeepFinite(float logit) {
  constexpr float kMost = std::numeric_limits<float>::max();
  return logit > kMost ? kMost : (logit < -kMost ? -kMost : logit);
}

// The logit once ReadLogit has read it, with the bias, then the penalties, of a token that was
// seen: positive logits are divided by the repetition penalty and others multiplied, once; then
// the frequency penalty times the token's count and, if it is in the answer, the presence penalty
// are subtracted. Sources: engine/sampling/sampler.h.
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
