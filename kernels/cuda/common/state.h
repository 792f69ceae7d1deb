#ifndef ANNULUS_KERNELS_CUDA_COMMON_STATE_H_
#define ANNULUS_KERNELS_CUDA_COMMON_STATE_H_

#include <cmath>

#include "kernels/cuda/common/device.h"

namespace annulus::cuda {

// The merge of kernels/ops/attention.h for one row: lse = log(exp(a) + exp(b)), and the weights of
// both sides. An empty side (lse = -infinity) has weight 0, and the other side weight 1 exactly.
struct MergeWeights {
  float lse;
  float into;
  float from;
};

ANNULUS_DEVICE bool IsEmpty(float lse) { return BitsOf(lse) == 0xff800000u; }

ANNULUS_DEVICE MergeWeights WeightsOfMerge(float into, float from) {
  if (IsEmpty(from)) return {into, 1, 0};
  if (IsEmpty(into)) return {from, 0, 1};
  const float maximum = Larger(into, from);
  const float lse = maximum + logf(expf(into - maximum) + expf(from - maximum));
  return {lse, expf(into - lse), expf(from - lse)};
}

// A side of weight 0 is dropped, even if it is NaN.
ANNULUS_DEVICE float Merged(const MergeWeights& weights, float into, float from) {
  if (weights.from == 0) return weights.into == 1 ? into : weights.into * into;
  if (weights.into == 0) return weights.from == 1 ? from : weights.from * from;
  return weights.into * into + weights.from * from;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_STATE_H_
