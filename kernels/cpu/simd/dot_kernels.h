#ifndef ANNULUS_KERNELS_CPU_SIMD_DOT_KERNELS_H_
#define ANNULUS_KERNELS_CPU_SIMD_DOT_KERNELS_H_

#include <cstdint>

#include "kernels/cpu/simd/kernels.h"

// The inner kernels of linear layers that use dot products of bf16 pairs (AVX512_BF16, AMX_BF16)
// with float32 sums. They correspond to the float32 kernels of simd/kernels.h and follow the same
// rules.

namespace annulus::cpu {

// output[r, c] = sum_k input[r, k] * weight(c, k) (+ bias[c]) (+ output[r, c]), with bf16 weights
// in panels of pairs (weight_layout.h).
struct DotTask {
  const void* input;  // [rows][depth] bf16, zero beyond the layer's inputs
  // bytes, a multiple of 64; rows must be readable up to the next multiple of row_multiple
  int64_t input_stride;
  int rows;            // 1..DotKernels::task_rows
  const void* panels;  // columns / 16 panels, rounded up
  int64_t panel_bytes;
  int64_t scales;     // bytes from a panel's start to its scales
  int64_t group;      // inputs per scale; 0: all
  int64_t depth;      // a multiple of 32 and of `group`
  int columns;        // 1..DotKernels::task_columns
  const float* bias;  // [columns] or null
  float* output;
  int64_t output_stride;
  bool accumulate;
  void* workspace;  // DotKernels::workspace_bytes, aligned to 64
};

// Inputs that share one fixed-point scale, if the weights have no groups of their own.
inline constexpr int64_t kFixedGroup = 64;

struct DotKernels {
  int task_rows;
  int task_columns;  // 64 times a power of two
  int row_multiple;
  int64_t workspace_bytes;

  // Rounds one row of `count` floats to bf16 and pads it with zeros to `depth`.
  void (*pack_row)(const float* input, int64_t count, int64_t depth, void* packed);

  // For Activations::kInt8. Indexed by the weights' DType; null if that is not an integer type. A
  // packed row holds `depth` codes, its float32 scale, and 4 bytes for each group of the weights:
  // see isa/dot_int8.h and isa/dot_int8_groups.h.
  void (*pack_int8_row[kWeightTypes])(const float* input, int64_t count, int64_t depth,
                                      int64_t group, void* packed);
  void (*linear_int8[kWeightTypes])(const DotTask&);

  // Indexed by the weights' DType; null if `pack_row` packs the rows for that type. A packed row
  // has 2 * depth bytes, then 8 for each group: either inputs in fixed point (isa/dot_fixed.h), or
  // bf16 inputs and the sum of each group.
  void (*pack_fixed_row[kWeightTypes])(const float* input, int64_t count, int64_t depth,
                                       int64_t group, void* packed);

  // Indexed by DType; null for weights that these kernels do not multiply (f32, f16).
  void (*linear[kWeightTypes])(const DotTask&);
};

// Call these only if the processor has the instructions.
const DotKernels& Avx512Bf16DotKernels();
const DotKernels& AmxDotKernels();

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_DOT_KERNELS_H_
