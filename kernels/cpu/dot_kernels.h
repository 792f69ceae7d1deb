#ifndef ANNULUS_KERNELS_CPU_DOT_KERNELS_H_
#define ANNULUS_KERNELS_CPU_DOT_KERNELS_H_

#include <cstdint>

#include "kernels/cpu/simd_kernels.h"

// Linear layers by dot products of pairs of bf16 (AVX512_BF16, AMX_BF16) with float32 sums: the
// inner kernels, as simd_kernels.h has them for products of float32. The same rules hold.

namespace annulus::cpu {

// output[r, c] = sum_k input[r, k] * weight(c, k) (+ bias[c]) (+ output[r, c]), weights in panels
// with bf16 in pairs (weight_layout.h).
struct DotTask {
  const void* input;     // [rows] of `depth` bf16, zero where the layer has fewer inputs
  int64_t input_stride;  // bytes, a multiple of 64; rows up to the next multiple of
                         // DotKernels::row_multiple are readable
  int rows;              // 1..DotKernels::task_rows
  const void* panels;    // of columns / 16, rounded up
  int64_t panel_bytes;
  int64_t scales;     // bytes from a panel's start to its scales
  int64_t group;      // inputs of one scale; 0: all
  int64_t depth;      // a multiple of 32 and of `group`
  int columns;        // 1..DotKernels::task_columns
  const float* bias;  // [columns] or null
  float* output;
  int64_t output_stride;
  bool accumulate;
  void* workspace;  // DotKernels::workspace_bytes, aligned to 64
};

// Inputs of one scale in fixed point, where weights have no groups of their own.
inline constexpr int64_t kFixedGroup = 64;

struct DotKernels {
  int task_rows;
  int task_columns;  // 64 times a power of two
  int row_multiple;
  int64_t workspace_bytes;

  // Rounds one row of `count` numbers to bf16 and fills with zeros up to `depth`.
  void (*pack_row)(const float* input, int64_t count, int64_t depth, void* packed);

  // Activations::kInt8. A packed row has `depth` codes + 128, those of neighbouring inputs 0 2 1 3
  // like the codes of weights, and then its float32 scale.
  void (*quantize_row)(const float* input, int64_t count, int64_t depth, void* packed);
  void (*linear_int8)(const DotTask&);

  // By the weights' DType; null where `pack_row` packs those too. A packed row has 2 * depth bytes,
  // then 8 for each group: inputs in fixed point (isa_dot_fixed.h), or bf16 and their groups' sums.
  void (*pack_fixed_row[kWeightTypes])(const float* input, int64_t count, int64_t depth,
                                       int64_t group, void* packed);

  // By DType; null where the weights are not multiplied this way (f32, f16).
  void (*linear[kWeightTypes])(const DotTask&);
};

// Only to be called where the processor has the instructions.
const DotKernels& Avx512Bf16DotKernels();
const DotKernels& AmxDotKernels();

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_DOT_KERNELS_H_
