// Merges of the SIMD path.
#include "kernels/cpu/simd_ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {

absl::Status MergeState(const SimdKernels& isa, CpuStream& stream, const MergeStateParams& params) {
  CheckMergeState(params);
  const int64_t v_dim = params.into.v_dim;
  stream.ParallelRows(params.into.rows * params.into.heads, 2 * v_dim,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          isa.merge_row(params.into.o + i * v_dim, params.into.lse + i,
                                        params.from.o + i * v_dim, params.from.lse[i], v_dim);
                        }
                      });
  return absl::OkStatus();
}

absl::Status MergeSink(const SimdKernels& isa, CpuStream& stream, const MergeSinkParams& params) {
  CheckMergeSink(params);
  static constexpr float kNothing[kMaxHeadDim] = {};
  const AttentionState& state = params.state;
  stream.ParallelRows(state.rows * state.heads, 2 * state.v_dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      isa.merge_row(state.o + i * state.v_dim, state.lse + i, kNothing,
                    params.sink[i % state.heads], state.v_dim);
    }
  });
  return absl::OkStatus();
}

}  // namespace annulus::cpu
