// Normalisation, activation and rotary embedding of the SIMD path.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/simd_ops.h"

namespace annulus::cpu {

absl::Status RmsNorm(const SimdKernels& isa, CpuStream& stream, const RmsNormParams& params) {
  CheckRmsNorm(params);
  const int64_t cols = params.output.cols;
  stream.ParallelRows(params.output.rows, 2 * cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      isa.rms_norm_row(params.input.row(r), params.weight, params.epsilon, params.output.row(r),
                       cols);
    }
  });
  return absl::OkStatus();
}

absl::Status SiluMul(const SimdKernels& isa, CpuStream& stream, const SiluMulParams& params) {
  CheckSiluMul(params);
  const int64_t cols = params.output.cols;
  stream.ParallelRows(params.output.rows, 4 * cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      isa.silu_mul_row(params.gate.row(r), params.up.row(r), params.output.row(r), cols);
    }
  });
  return absl::OkStatus();
}

absl::Status RopeTable(const SimdKernels& isa, CpuStream& stream, const RopeTableParams& params) {
  CheckRopeTable(params);
  const int64_t pairs = params.inverse_frequencies.size();
  stream.ParallelRows(params.positions.size(), 16 * pairs, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      isa.rope_table_row(params.positions[r], params.inverse_frequencies.data(), params.scale,
                         params.cosine.row(r), params.sine.row(r), pairs);
    }
  });
  return absl::OkStatus();
}

absl::Status Rope(const SimdKernels& isa, CpuStream& stream, const RopeParams& params) {
  CheckRope(params);
  stream.ParallelRows(params.values.rows, params.values.cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int h = 0; h < params.heads; ++h) {
        isa.rope_head(params.values.row(r) + int64_t{h} * params.head_dim, params.cosine.row(r),
                      params.sine.row(r), params.cosine.cols);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace annulus::cpu
