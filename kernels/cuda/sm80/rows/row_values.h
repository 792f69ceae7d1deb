#ifndef ANNULUS_KERNELS_CUDA_SM80_ROWS_ROW_VALUES_H_
#define ANNULUS_KERNELS_CUDA_SM80_ROWS_ROW_VALUES_H_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/common/device.h"
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/sm80/elementwise.h"
#include "kernels/cuda/sm80/linear_weights.h"
#include "kernels/cuda/sm80/rows/row_blocks.h"

// The formulas of norms, gated products and codes, for every kernel that computes them: whoever
// includes this gives the same bits, if it is compiled without contraction of products and sums.

namespace annulus::cuda {

struct RowNorm {
  float mean;  // 0 if the norm is not centred
  float root;
};

// Of a row of `cols` elements, for all threads of the block. The order of the sums depends on
// `cols` alone. Requires that nobody uses the shared memory of SumOfBlock.
ANNULUS_DEVICE RowNorm NormOfRow(const NormRule& norm, const float* x, int64_t cols) {
  const auto count = static_cast<float>(cols);
  float mean = 0;
  if (norm.centred) {
    for (int64_t i = ThreadIndex(); i < cols; i += kRowThreads) mean += x[i];
    mean = SumOfBlock(mean) / count;
    SyncThreads();
  }
  float sum = 0;
  for (int64_t i = ThreadIndex(); i < cols; i += kRowThreads) sum += (x[i] - mean) * (x[i] - mean);
  return {mean, sqrtf(SumOfBlock(sum) / count + norm.epsilon)};
}

// Element `i` of a normalised row. `bias`: of the row, or null.
ANNULUS_DEVICE float Normalised(const RowNorm& row, float x, float weight, const float* bias,
                                int64_t i) {
  const float value = (x - row.mean) / row.root * weight;
  return bias == nullptr ? value : value + bias[i];
}

ANNULUS_DEVICE float GeluTanh(float x) {
  const float t = 0.7978845608f * (x + 0.044715f * x * x * x);
  return x / (1 + expf(-2 * t));
}

ANNULUS_DEVICE float Gated(const GatedMulParams& a, float gate, float up) {
  switch (a.activation) {
    case Activation::kSilu:
      return gate / (1 + expf(-gate)) * up;
    case Activation::kGeluTanh:
      return GeluTanh(gate) * up;
    case Activation::kGeluTanhAlone:
      return GeluTanh(gate);
    default:
      gate = Smaller(gate, a.limit);
      up = Larger(Smaller(up, a.limit), -a.limit);
      return gate / (1 + expf(-a.alpha * gate)) * (up + 1);
  }
}

// The largest of all threads' magnitudes, for each of them: as bits, which order like numbers, and
// NaN lies above all. Requires that nobody uses the shared memory of SumOfBlock.
ANNULUS_DEVICE uint32_t LargestOfBlock(uint32_t largest) {
  auto* const shared = reinterpret_cast<uint32_t*>(SharedMemory());
  largest = WarpMax(largest);
  if (Lane() == 0) shared[WarpIndex()] = largest;
  SyncThreads();
  for (int i = 0; i < kRowWarps; ++i) largest = Larger(largest, shared[i]);
  return largest;
}
ANNULUS_DEVICE uint32_t MagnitudeOf(float x) { return BitsOf(x) & 0x7fffffffu; }

// Writes the codes of elements 4 * four .. 4 * four + 3 of a row, which are `values`, in the form
// a.kind: one of fp8.
ANNULUS_DEVICE void StoreFourCodes(const RoundRowsArguments& a, int64_t row, int64_t four,
                                   const Float8Scale& scale, const float (&values)[4]) {
  uint32_t word = 0;
  Bytes16 wide{};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t code = Float8Code(scale, values[i]);
    word |= code << 8 * i;
    wide.words[i] = BitsOf(WidenFloat8E4M3(code));
  }
  const int64_t at = row * (a.depth / 4) + four;
  if (a.kind == RoundedRows::kFloat8) {
    static_cast<uint32_t*>(a.output)[at] = word;
  } else if (a.kind == RoundedRows::kFloat8Steps) {
    auto* const step =
        static_cast<uint32_t*>(a.output) + row * (a.depth / 2) + four / 8 * (kDepthStep / 2);
    const int t = static_cast<int>(four % 8 / 2);
    const int p = static_cast<int>(four % 2 * 2);
    step[WordOfPair(t, p)] = WidenFloat8(DType::kF8E4M3, word, CodePair::k01);
    step[WordOfPair(t, p + 1)] = WidenFloat8(DType::kF8E4M3, word, CodePair::k23);
  } else {
    static_cast<Bytes16*>(a.output)[at] = wide;
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ROWS_ROW_VALUES_H_
