#ifndef ANNULUS_KERNELS_CPU_SIMD_OPS_H_
#define ANNULUS_KERNELS_CPU_SIMD_OPS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/host/cpu_stream.h"
#include "kernels/cpu/simd/dot_kernels.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/weight_layout.h"
#include "kernels/registry.h"

// The ops of the SIMD tables. kernels/ops/ has the contracts; `isa` provides the inner loops. Pages
// have the layout of page_layout.h, packed weights that of weight_layout.h.

namespace annulus::cpu {

absl::Status Linear(const SimdKernels& isa, CpuStream& stream, const LinearParams& params);
absl::Status Embed(CpuStream& stream, const EmbedParams& params, Bf16Order order);

absl::Status Norm(const SimdKernels& isa, CpuStream& stream, const NormParams& params);
absl::Status GatedMul(const SimdKernels& isa, CpuStream& stream, const GatedMulParams& params);
absl::Status Scale(const SimdKernels& isa, CpuStream& stream, const ScaleParams& params);
absl::Status SoftCap(const SimdKernels& isa, CpuStream& stream, const SoftCapParams& params);
absl::Status RopeTable(const SimdKernels& isa, CpuStream& stream, const RopeTableParams& params);
absl::Status Rope(const SimdKernels& isa, CpuStream& stream, const RopeParams& params);

size_t KvPageBytes(const SimdKernels& isa, const KvPageShape& shape);
absl::Status KvAppend(const SimdKernels& isa, CpuStream& stream, const KvAppendParams& params);
absl::Status KvRead(const SimdKernels& isa, CpuStream& stream, const KvReadParams& params);

absl::Status Attention(const SimdKernels& isa, CpuStream& stream, const AttentionParams& params);
// Computes `item`, one of params.items, which has branches. Ignores the other items. `layout` is
// this item's, and empty in the first call: see AttentionParams::layout.
absl::Status DilatedAttention(const SimdKernels& isa, CpuStream& stream,
                              const AttentionParams& params, const AttentionItem& item,
                              std::unique_ptr<AttentionLayout>& layout);
// `dot` is null if the table has no dot-product kernels.
absl::Status BlockScores(const SimdKernels& isa, const DotKernels* dot, CpuStream& stream,
                         const BlockScoresParams& params);
absl::Status ScoreSums(const SimdKernels& isa, CpuStream& stream, const ScoreSumsParams& params);
absl::Status BlockMasses(CpuStream& stream, const BlockMassesParams& params);
absl::Status KeySummary(const SimdKernels& isa, CpuStream& stream, const KeySummaryParams& params);
absl::Status SummaryScores(const SimdKernels& isa, CpuStream& stream,
                           const SummaryScoresParams& params);
absl::Status RowMeans(CpuStream& stream, const RowMeansParams& params);
absl::Status MergeState(const SimdKernels& isa, CpuStream& stream, const MergeStateParams& params);
absl::Status MergeSink(const SimdKernels& isa, CpuStream& stream, const MergeSinkParams& params);

absl::Status Route(CpuStream& stream, const RouteParams& params);
// `linear` is the table's own linear.
using LinearOp = absl::Status (*)(Stream&, const LinearParams&);
absl::Status ExpertLinear(CpuStream& stream, const ExpertLinearParams& params, LinearOp linear);
absl::Status AddChoices(const SimdKernels& isa, CpuStream& stream, const AddChoicesParams& params);
absl::Status GatherRows(CpuStream& stream, const GatherRowsParams& params);
absl::Status ScatterAdd(const SimdKernels& isa, CpuStream& stream, const ScatterAddParams& params);

absl::Status PredictStreams(const SimdKernels& isa, CpuStream& stream,
                            const PredictStreamsParams& params);
absl::Status CorrectStreams(const SimdKernels& isa, CpuStream& stream,
                            const CorrectStreamsParams& params);
absl::Status MatchMagnitude(const SimdKernels& isa, CpuStream& stream,
                            const MatchMagnitudeParams& params);
absl::Status CutOff(CpuStream& stream, const CutOffParams& params);

// Whether pages of `dtype` use one byte per element.
inline bool IsNarrow(DType dtype) { return static_cast<int>(dtype) >= kStorageTypes; }
// The index of `dtype` in the SimdKernels tables for storage types and for narrow types.
int StorageIndex(DType dtype);
int NarrowIndex(DType dtype);

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_OPS_H_
