#ifndef ANNULUS_KERNELS_CUDA_OPS_H_
#define ANNULUS_KERNELS_CUDA_OPS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/common/page_layout.h"
#include "kernels/cuda/sm90/attention_pairs.h"
#include "kernels/registry.h"

// The host side of all ops of the tables "cuda/sm80", "cuda/sm90" and their row-invariant variants.
// Each op checks its Params, copies their host arrays to the device, and launches. Contracts:
// kernels/ops/.

namespace annulus::cuda {

// The largest k_dim and v_dim that attention supports; pages may have larger ones.
inline constexpr int kMaxAttentionDim = 256;

// Products with bf16 weights and at least this many rows go to a library, if there is one.
inline constexpr int64_t kLibraryRows = 128;

// The tables "cuda/sm80" and "cuda/sm90", which differ only in HopperAttention. Both run on any
// device that this backend supports.
OpTable Ops();
OpTable HopperOps();
// "cuda/sm80-invariant" and "cuda/sm90-invariant": the same with bits that depend on positions
// alone (OpTable::row_invariant), at the cost of attention in parts and of products without the
// library.
OpTable InvariantOps();
OpTable InvariantHopperOps();

PageLayout LayoutOf(const KvPageShape& shape);

absl::StatusOr<size_t> MatrixBytes(int64_t out, int64_t in, DType dtype);
absl::Status PackRows(PackedMatrix& matrix, int64_t first_row, const HostTensorView& source,
                      QuantizationError* error);
absl::Status Linear(Stream& stream, const LinearParams& params);
absl::Status Linears(Stream& stream, std::span<const LinearParams> parts);
// Without the library.
absl::Status InvariantLinear(Stream& stream, const LinearParams& params);
absl::Status InvariantLinears(Stream& stream, std::span<const LinearParams> parts);
absl::Status Embed(Stream& stream, const EmbedParams& params);
absl::Status Norm(Stream& stream, const NormParams& params);
absl::Status GatedMul(Stream& stream, const GatedMulParams& params);
absl::Status Scale(Stream& stream, const ScaleParams& params);
absl::Status SoftCap(Stream& stream, const SoftCapParams& params);
absl::Status RopeTable(Stream& stream, const RopeTableParams& params);
absl::Status Rope(Stream& stream, const RopeParams& params);
size_t KvPageBytes(const KvPageShape& shape);
absl::Status KvAppend(Stream& stream, const KvAppendParams& params);
absl::Status KvRead(Stream& stream, const KvReadParams& params);
absl::Status Attention(Stream& stream, const AttentionParams& params);
// Uses the kernels of sm90/ for what they support: see tuning/attention_path.h.
absl::Status HopperAttention(Stream& stream, const AttentionParams& params);
// The same, with the units of many rows in sections of kSectionBytes (tuning/unit_order.h). On
// trial: see trial.h.
absl::Status SectionedHopperAttention(Stream& stream, const AttentionParams& params);
// The same, with units of many rows in pairs where PairsServe (tuning/unit_pairs.h). On trial, too.
absl::Status PairedHopperAttention(Stream& stream, const AttentionParams& params,
                                   PairedAttentionLaunch launch);
// In the order of summation of kernels/ops/attention.h (tuning/invariant_plan.h).
absl::Status InvariantAttention(Stream& stream, const AttentionParams& params);
absl::Status InvariantHopperAttention(Stream& stream, const AttentionParams& params);
absl::Status BlockScores(Stream& stream, const BlockScoresParams& params);
absl::Status ScoreSums(Stream& stream, const ScoreSumsParams& params);
absl::Status BlockMasses(Stream& stream, const BlockMassesParams& params);
absl::Status KeySummary(Stream& stream, const KeySummaryParams& params);
absl::Status SummaryScores(Stream& stream, const SummaryScoresParams& params);
absl::Status RowMeans(Stream& stream, const RowMeansParams& params);
absl::Status MergeState(Stream& stream, const MergeStateParams& params);
absl::Status MergeSink(Stream& stream, const MergeSinkParams& params);
absl::Status Route(Stream& stream, const RouteParams& params);
absl::Status ExpertLinear(Stream& stream, const ExpertLinearParams& params);
absl::Status AddChoices(Stream& stream, const AddChoicesParams& params);
absl::Status GatherRows(Stream& stream, const GatherRowsParams& params);
absl::Status ScatterAdd(Stream& stream, const ScatterAddParams& params);
absl::Status PredictStreams(Stream& stream, const PredictStreamsParams& params);
absl::Status CorrectStreams(Stream& stream, const CorrectStreamsParams& params);
absl::Status MatchMagnitude(Stream& stream, const MatchMagnitudeParams& params);
absl::Status CutOff(Stream& stream, const CutOffParams& params);
absl::Status Sample(Stream& stream, const SampleParams& params);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_OPS_H_
