#ifndef ANNULUS_TESTS_FUZZ_PLAN_LIMITS_H_
#define ANNULUS_TESTS_FUZZ_PLAN_LIMITS_H_

#include "engine/codec/step_codec.h"

namespace annulus::testing {

// A ring of three ranks, for plans as seeds and as input.
inline CodecLimits FuzzedPlanLimits() {
  return {.pages = {50, 60, 70},
          .groups = 2,
          .page_tokens = 16,
          .vocabulary = 1000,
          .layers = 6,
          .kv_heads = 2,
          .bytes = size_t{1} << 20};
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_FUZZ_PLAN_LIMITS_H_
