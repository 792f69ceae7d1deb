// Normalisation, activation and rotary embedding of the SIMD path.
#include <algorithm>

#include "kernels/cpu/simd/ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {

absl::Status Norm(const SimdKernels& isa, CpuStream& stream, const NormParams& params) {
  CheckNorm(params);
  const int64_t cols = params.output.cols;
  stream.ParallelRows(params.output.rows, 2 * cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      isa.norm_row({params.input.row(r), params.weight_of(r), params.bias, params.norm,
                    params.output.row(r), cols, params.accumulate});
    }
  });
  return absl::OkStatus();
}

absl::Status GatedMul(const SimdKernels& isa, CpuStream& stream, const GatedMulParams& params) {
  static_assert(kGatedRows == kActivations);
  CheckGatedMul(params);
  const int64_t cols = params.output.cols;
  const auto row = isa.gated_mul_row[static_cast<int>(params.activation)];
  stream.ParallelRows(params.output.rows, 4 * cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      row(params.gate.row(r), params.up.row(r), params.output.row(r), cols, params.alpha,
          params.limit);
    }
  });
  return absl::OkStatus();
}

absl::Status Scale(const SimdKernels& isa, CpuStream& stream, const ScaleParams& params) {
  const int64_t cols = params.values.cols;
  stream.ParallelRows(params.values.rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (params.factor == 0) {
        std::fill_n(params.values.row(r), cols, 0.0f);
      } else {
        isa.scale_row(params.values.row(r), params.factor, cols);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status SoftCap(const SimdKernels& isa, CpuStream& stream, const SoftCapParams& params) {
  CheckSoftCap(params);
  const int64_t cols = params.values.cols;
  stream.ParallelRows(params.values.rows, 4 * cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) isa.soft_cap_row(params.values.row(r), params.cap, cols);
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
