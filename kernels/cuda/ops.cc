// Ops whose kernels touch every element once, pages and states. Linear layers and attention have
// files of their own.
#include "kernels/cuda/ops.h"

#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/sm80/elementwise.h"
#include "kernels/cuda/sm80/pages.h"
#include "kernels/cuda/sm80/rows/streams.h"
#include "kernels/ops/checks.h"

namespace annulus::cuda {
namespace {

int PaddedDim(int dim) { return (dim + 15) / 16 * 16; }

absl::Status MoveRows(Stream& stream, ConstMatrixView input, std::span<const int32_t> rows,
                      std::span<const float> weights, MatrixView output) {
  if (rows.empty()) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  ANNULUS_RETURN_IF_ERROR(own->BeginUpload(rows.size_bytes() + weights.size_bytes() +
                                           2 * CudaStream::kUploadAlignment));
  MoveRowsArguments arguments{};
  arguments.input = input;
  arguments.rows = own->Upload(rows);
  arguments.weights = weights.empty() ? nullptr : own->Upload(weights);
  arguments.together = 1;
  arguments.count = static_cast<int64_t>(rows.size());
  arguments.output = output;
  ANNULUS_RETURN_IF_ERROR(own->SendUpload());
  return StatusOf(LaunchMoveRows(own->handle(), arguments), "moving rows");
}

}  // namespace

PageLayout LayoutOf(const KvPageShape& shape) {
  CheckPageShape(shape);
  PageLayout layout{};
  layout.page_tokens = shape.page_tokens;
  layout.kv_heads = shape.kv_heads;
  layout.k_dim = shape.k_dim;
  layout.v_dim = shape.v_dim;
  layout.k_stride = PaddedDim(shape.k_dim);
  layout.v_stride = PaddedDim(shape.v_dim);
  layout.element = static_cast<int>(DTypeSize(shape.dtype));
  layout.dtype = shape.dtype;
  return layout;
}

size_t KvPageBytes(const KvPageShape& shape) {
  const PageLayout layout = LayoutOf(shape);
  const int64_t bytes = shape.dtype == DType::kI8 ? layout.ValueScale(shape.kv_heads, 0)
                                                  : layout.Value(shape.kv_heads, 0);
  return static_cast<size_t>((bytes + 63) / 64 * 64);
}

absl::Status Norm(Stream& stream, const NormParams& params) {
  CheckNorm(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchNorm(own->handle(), params), "norm");
}

absl::Status GatedMul(Stream& stream, const GatedMulParams& params) {
  CheckGatedMul(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchGatedMul(own->handle(), params), "gated_mul");
}

absl::Status Scale(Stream& stream, const ScaleParams& params) {
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchScale(own->handle(), {params.values, params.factor, nullptr, nullptr,
                                              nullptr, params.values, false}),
                  "scale");
}

absl::Status SoftCap(Stream& stream, const SoftCapParams& params) {
  CheckSoftCap(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchScale(own->handle(), {params.values, 1, nullptr, nullptr, nullptr,
                                              params.values, false, params.cap}),
                  "soft_cap");
}

absl::Status RopeTable(Stream& stream, const RopeTableParams& params) {
  CheckRopeTable(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  ANNULUS_RETURN_IF_ERROR(own->BeginUpload(params.positions.size_bytes() +
                                           params.inverse_frequencies.size_bytes() +
                                           2 * CudaStream::kUploadAlignment));
  const RopeTableArguments arguments{own->Upload(params.positions),
                                     own->Upload(params.inverse_frequencies), params.scale,
                                     params.cosine, params.sine};
  ANNULUS_RETURN_IF_ERROR(own->SendUpload());
  return StatusOf(LaunchRopeTable(own->handle(), arguments), "rope_table");
}

absl::Status Rope(Stream& stream, const RopeParams& params) {
  CheckRope(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchRope(own->handle(), params), "rope");
}

absl::Status KvAppend(Stream& stream, const KvAppendParams& params) {
  CheckKvAppend(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  ANNULUS_RETURN_IF_ERROR(own->BeginUpload(params.pages.size_bytes() + params.slots.size_bytes() +
                                           2 * CudaStream::kUploadAlignment));
  const KvAppendArguments arguments{LayoutOf(params.shape), params.k, params.v,
                                    own->Upload(params.pages), own->Upload(params.slots)};
  ANNULUS_RETURN_IF_ERROR(own->SendUpload());
  return StatusOf(LaunchKvAppend(own->handle(), arguments), "kv_append");
}

absl::Status KvRead(Stream& stream, const KvReadParams& params) {
  CheckKvRead(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(
      LaunchKvRead(own->handle(), {LayoutOf(params.shape), params.page, params.k, params.v}),
      "kv_read");
}

absl::Status MergeState(Stream& stream, const MergeStateParams& params) {
  CheckMergeState(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(
      LaunchMerge(own->handle(), {params.into, params.from.o, params.from.lse, nullptr}),
      "merge_state");
}

absl::Status MergeSink(Stream& stream, const MergeSinkParams& params) {
  CheckMergeSink(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchMerge(own->handle(), {params.state, nullptr, nullptr, params.sink}),
                  "merge_sink");
}

absl::Status Route(Stream& stream, const RouteParams& params) {
  CheckRoute(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchRoute(own->handle(), params), "route");
}

absl::Status AddChoices(Stream& stream, const AddChoicesParams& params) {
  CheckAddChoices(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchMoveRows(own->handle(), {params.input, nullptr, params.weights,
                                                 params.chosen, params.output.rows, params.output}),
                  "add_choices");
}

absl::Status GatherRows(Stream& stream, const GatherRowsParams& params) {
  CheckGatherRows(params);
  return MoveRows(stream, params.input, params.rows, {}, params.output);
}

absl::Status ScatterAdd(Stream& stream, const ScatterAddParams& params) {
  CheckScatterAdd(params);
  return MoveRows(stream, params.input, params.rows, params.weights, params.output);
}

absl::Status PredictStreams(Stream& stream, const PredictStreamsParams& params) {
  CheckPredictStreams(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchPredictStreams(own->handle(), params), "predict_streams");
}

absl::Status CorrectStreams(Stream& stream, const CorrectStreamsParams& params) {
  CheckCorrectStreams(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchCorrectStreams(own->handle(), params), "correct_streams");
}

absl::Status MatchMagnitude(Stream& stream, const MatchMagnitudeParams& params) {
  CheckMatchMagnitude(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchMatchMagnitude(own->handle(), params), "match_magnitude");
}

absl::Status CutOff(Stream& stream, const CutOffParams& params) {
  CheckCutOff(params);
  ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
  return StatusOf(LaunchCutOff(own->handle(), params), "cut_off");
}

OpTable Ops() {
  OpTable ops;
  ops.name = "cuda/sm80";
  ops.row_invariant = false;  // the shape of a block depends on the rows of an item
  ops.kv_page_bytes = KvPageBytes;
  ops.matrix_bytes = MatrixBytes;
  ops.pack_rows = PackRows;
  ops.linear = Linear;
  ops.linears = Linears;
  ops.embed = Embed;
  ops.norm = Norm;
  ops.gated_mul = GatedMul;
  ops.scale = Scale;
  ops.soft_cap = SoftCap;
  ops.rope_table = RopeTable;
  ops.rope = Rope;
  ops.kv_append = KvAppend;
  ops.kv_read = KvRead;
  ops.attention = Attention;
  ops.block_scores = BlockScores;
  ops.score_sums = ScoreSums;
  ops.block_masses = BlockMasses;
  ops.key_summary = KeySummary;
  ops.summary_scores = SummaryScores;
  ops.row_means = RowMeans;
  ops.merge_state = MergeState;
  ops.merge_sink = MergeSink;
  ops.route = Route;
  ops.expert_linear = ExpertLinear;
  ops.add_choices = AddChoices;
  ops.gather_rows = GatherRows;
  ops.scatter_add = ScatterAdd;
  ops.predict_streams = PredictStreams;
  ops.correct_streams = CorrectStreams;
  ops.match_magnitude = MatchMagnitude;
  ops.cut_off = CutOff;
  ops.sample = Sample;
  return ops;
}

OpTable HopperOps() {
  OpTable ops = Ops();
  ops.name = "cuda/sm90";
  ops.attention = HopperAttention;
  return ops;
}

OpTable InvariantOps() {
  OpTable ops = Ops();
  ops.name = "cuda/sm80-invariant";
  ops.row_invariant = true;
  ops.linear = InvariantLinear;
  ops.linears = InvariantLinears;
  ops.attention = InvariantAttention;
  return ops;
}

OpTable InvariantHopperOps() {
  OpTable ops = InvariantOps();
  ops.name = "cuda/sm90-invariant";
  ops.attention = InvariantHopperAttention;
  return ops;
}

}  // namespace annulus::cuda
