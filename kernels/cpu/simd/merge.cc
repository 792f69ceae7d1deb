// Merges of the SIMD path.
#include "kernels/cpu/simd/ops.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {

absl::Status MergeState(const SimdKernels& isa, CpuStream& stream, const MergeStateParams& params) {
  CheckMergeState(params);
  const int64_t v_dim = params.into.v_dim;
  stream.ParallelRows(params.into.rows * params.into.heads, 2 * v_dim,
                      [&](int64_t begin, int64_t end) {
                        isa.merge_rows({.o = params.into.o + begin * v_dim,
                                        .o_stride = v_dim,
                                        .lse = params.into.lse + begin,
                                        .from_o = params.from.o + begin * v_dim,
                                        .from_stride = v_dim,
                                        .from_lse = params.from.lse + begin,
                                        .rows = end - begin,
                                        .v_dim = v_dim});
                      });
  return absl::OkStatus();
}

absl::Status MergeSink(const SimdKernels& isa, CpuStream& stream, const MergeSinkParams& params) {
  CheckMergeSink(params);
  static constexpr float kNothing[kMaxHeadDim] = {};
  const AttentionState& state = params.state;
  stream.ParallelRows(state.rows, 2 * state.heads * state.v_dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = row * state.heads;
      isa.merge_rows({.o = state.o + first * state.v_dim,
                      .o_stride = state.v_dim,
                      .lse = state.lse + first,
                      .from_o = kNothing,
                      .from_stride = 0,
                      .from_lse = params.sink,
                      .rows = state.heads,
                      .v_dim = state.v_dim});
    }
  });
  return absl::OkStatus();
}

}  // namespace annulus::cpu
