#ifndef ANNULUS_KERNELS_CPU_ISA_TABLE_H_
#define ANNULUS_KERNELS_CPU_ISA_TABLE_H_

#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/elementwise.h"
#include "kernels/cpu/isa/lane_dots.h"
#include "kernels/cpu/isa/linear.h"
#include "kernels/cpu/isa/narrow_keys.h"
#include "kernels/cpu/isa/summaries.h"
#include "kernels/cpu/simd/kernels.h"

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// All kernels over the vector type V.
template <class V>
constexpr SimdKernels kKernels = {
    .linear = {Linear<V, float>, Linear<V, Bf16>, Linear<V, F16>, LinearWidened<V, E4M3>,
               LinearWidened<V, E5M2>, LinearWidened<V, int8_t>, LinearWidened<V, Int4>,
               LinearWidened<V, Int4>, LinearWidened<V, Q8_0>, LinearWidened<V, Q4_0>,
               LinearWidened<V, Q4_1>},
    .attention_begin = BeginSpan<V>,
    .attention_keys = {AttendKeys<V, float>, AttendKeys<V, Bf16>, AttendKeys<V, F16>},
    .widen_keys = {WidenKeys<V, E4M3>, WidenKeys<V, E5M2>, WidenKeys<V, int8_t>},
    .lane_dots = {LaneProducts<V, float>, LaneProducts<V, Bf16>, LaneProducts<V, F16>,
                  LaneProducts<V, E4M3>, LaneProducts<V, E5M2>, LaneProducts<V, int8_t>},
    .bound_summaries = BoundSummaries<V>,
    .attention_finish = FinishSpan<V>,
    .paired = nullptr,
    .merge_rows = MergeRows<V>,
    .norm_row = NormRow<V>,
    .gated_mul_row = {SiluMulRow<V>, GeluTanhMulRow<V>, ClampedSwigluRow<V>, GeluTanhRow<V>},
    .soft_cap_row = SoftCapRow<V>,
    .scale_row = ScaleRow<V>,
    .add_scaled_row = AddScaledRow<V>,
    .add_exp_sums = AddExpSums<V>,
    .rope_table_row = RopeTableRow<V>,
    .rope_head = RopeHead<V>,
    .narrow = {Narrow<V, float>, Narrow<V, Bf16>, Narrow<V, F16>},
    .widen = {Widen<V, float>, Widen<V, Bf16>, Widen<V, F16>},
};

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_TABLE_H_
