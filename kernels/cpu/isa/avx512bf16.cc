// The kernels for AVX512F, BW, DQ, VL and BF16: those of isa/avx512.cc, and attention over paired
// bf16 pages. Compiled with those instructions: see simd/kernels.h.
#include "kernels/cpu/isa/attention_bf16.h"
#include "kernels/cpu/isa/paired_keys.h"
#include "kernels/cpu/isa/paired_lane_dots.h"
#include "kernels/cpu/isa/table.h"
#include "kernels/cpu/isa/vec_avx512.h"

namespace annulus::cpu {
namespace {

constexpr PairedAttention kPaired = {
    .k_multiple = 2,
    .row_multiple = 1,
    .exact_rows = INT32_MAX,
    .staged_rows = 0,
    .chunks = 1,
    .begin = BeginPairedSpan,
    .resume = nullptr,
    .keys = AttendPairedKeys,
    .finish = FinishPairedSpan,
    .widen_keys = {WidenPairedKeys<E4M3>, WidenPairedKeys<E5M2>, WidenPairedKeys<int8_t>},
    .widen_values = {WidenPairedValues<E4M3>, WidenPairedValues<E5M2>, WidenPairedValues<int8_t>},
    .lane_dots = {PairedLaneProducts<Bf16>, PairedLaneProducts<E4M3>, PairedLaneProducts<E5M2>,
                  PairedLaneProducts<int8_t>},
};

constexpr SimdKernels WithPaired(SimdKernels kernels) {
  kernels.paired = &kPaired;
  return kernels;
}
constexpr SimdKernels kBf16Kernels = WithPaired(kKernels<VecAvx512>);

}  // namespace

const SimdKernels& Avx512Bf16Kernels() { return kBf16Kernels; }

}  // namespace annulus::cpu
