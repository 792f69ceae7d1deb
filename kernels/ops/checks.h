#ifndef ANNULUS_KERNELS_OPS_CHECKS_H_
#define ANNULUS_KERNELS_OPS_CHECKS_H_

#include <span>

#include "kernels/ops/attention.h"
#include "kernels/ops/block_masses.h"
#include "kernels/ops/block_scores.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/experts.h"
#include "kernels/ops/gated_block.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/sampling.h"
#include "kernels/ops/streams.h"

// The checks on Params that all implementations share, beyond what the types say. The engine builds
// the Params, so a violation is our own bug and ends the process.

namespace annulus {

// The largest head_dim (k or v) that any table serves: the size of their conversion buffers.
inline constexpr int kMaxHeadDim = 1024;

void CheckLinear(const LinearParams& params);
void CheckLinears(std::span<const LinearParams> parts);
void CheckEmbed(const EmbedParams& params);
void CheckNorm(const NormParams& params);
void CheckGatedMul(const GatedMulParams& params);
void CheckGatedBlock(const GatedBlockParams& params);
void CheckSoftCap(const SoftCapParams& params);
void CheckRopeTable(const RopeTableParams& params);
void CheckRope(const RopeParams& params);
void CheckPageShape(const KvPageShape& shape);
void CheckKvAppend(const KvAppendParams& params);
void CheckKvRead(const KvReadParams& params);
void CheckAttention(const AttentionParams& params);
void CheckBlockScores(const BlockScoresParams& params);
void CheckScoreSums(const ScoreSumsParams& params);
void CheckBlockMasses(const BlockMassesParams& params);
void CheckKeySummary(const KeySummaryParams& params);
void CheckSummaryScores(const SummaryScoresParams& params);
void CheckRowMeans(const RowMeansParams& params);
void CheckMergeState(const MergeStateParams& params);
void CheckMergeSink(const MergeSinkParams& params);
void CheckRoute(const RouteParams& params);
void CheckExpertLinear(const ExpertLinearParams& params);
void CheckAddChoices(const AddChoicesParams& params);
void CheckGatherRows(const GatherRowsParams& params);
void CheckScatterAdd(const ScatterAddParams& params);
void CheckPredictStreams(const PredictStreamsParams& params);
void CheckCorrectStreams(const CorrectStreamsParams& params);
void CheckMatchMagnitude(const MatchMagnitudeParams& params);
void CheckCutOff(const CutOffParams& params);
void CheckSample(const SampleParams& params);

// OK if a [rows, cols] matrix of any dtype has at least one element and its size in bytes, after
// any table's padding, fits an int64. INVALID_ARGUMENT otherwise, because a checkpoint can cause
// it.
absl::Status CheckMatrixShape(int64_t rows, int64_t cols);

// Checks the arguments of pack_rows: the rows lie inside the matrix and start at a multiple of
// kPackRows.
void CheckPackRows(const PackedMatrix& matrix, int64_t first_row, const HostTensorView& source);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_CHECKS_H_
