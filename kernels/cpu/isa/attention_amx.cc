// Attention over paired bf16 pages for AMX_TILE and AMX_BF16, beside AVX512F, BW, DQ, VL and BF16.
// Compiled with those instructions: see simd/kernels.h.
#include "kernels/cpu/isa/attention_amx.h"

#include "kernels/cpu/isa/paired_keys.h"
#include "kernels/cpu/isa/paired_lane_dots.h"

namespace annulus::cpu {
namespace {

constexpr PairedAttention kPaired = {
    .k_multiple = 2 * kAmxDepth,
    .row_multiple = kAmxRows,
    .exact_rows = kAmxRows,
    .staged_rows = kAmxRows,
    .chunks = kChunksTogether,
    .begin = BeginAmxSpan,
    .resume = ConfigureAmx,
    .keys = AttendAmxKeys,
    .finish = FinishAmxSpan,
    .widen_keys = {WidenPairedKeys<E4M3>, WidenPairedKeys<E5M2>, WidenPairedKeys<int8_t>},
    .widen_values = {WidenPairedValues<E4M3>, WidenPairedValues<E5M2>, WidenPairedValues<int8_t>},
    .lane_dots = {PairedLaneProducts<Bf16>, PairedLaneProducts<E4M3>, PairedLaneProducts<E5M2>,
                  PairedLaneProducts<int8_t>},
};

}  // namespace

const PairedAttention& AmxAttentionKernels() { return kPaired; }

}  // namespace annulus::cpu
