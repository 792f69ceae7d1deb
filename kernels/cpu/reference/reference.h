#ifndef ANNULUS_KERNELS_CPU_REFERENCE_REFERENCE_H_
#define ANNULUS_KERNELS_CPU_REFERENCE_REFERENCE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry.h"

// The scalar reference, "cpu/reference": every op in float32 in the plainest way. All other kernels
// are tested against it, so it has no blocking and no vectors and shares no code with them; it only
// spreads rows over the stream's threads. The contracts are in kernels/ops/. Packed weights:
// row-major [out, in] codes or values as QuantizeRow gives them, then all scales. Page: K
// [kv_heads][page_tokens][k_dim], then V the same way; int8 pages then hold the bf16 scales of K
// [kv_heads][page_tokens] and those of V.

namespace annulus::reference {

OpTable Ops();

absl::StatusOr<size_t> MatrixBytes(int64_t out, int64_t in, DType dtype);
absl::Status PackRows(PackedMatrix& matrix, int64_t first_row, const HostTensorView& source,
                      QuantizationError* error);
absl::Status Linear(Stream& stream, const LinearParams& params);
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

}  // namespace annulus::reference

#endif  // ANNULUS_KERNELS_CPU_REFERENCE_REFERENCE_H_
