#ifndef ANNULUS_KERNELS_CPU_REGISTER_SIMD_H_
#define ANNULUS_KERNELS_CPU_REGISTER_SIMD_H_

#include "kernels/cpu/simd/ops.h"
#include "kernels/registry.h"

namespace annulus {

// An OpTable of the SIMD drivers (simd/ops.h) with one instruction set's kernels.
template <const cpu::SimdKernels& (*kIsa)()>
OpTable SimdOps(const char* name) {
  OpTable ops;
  ops.name = name;
  ops.kv_page_bytes = [](const KvPageShape& shape) { return cpu::KvPageBytes(kIsa(), shape); };
  ops.matrix_bytes = [](int64_t out, int64_t in, DType dtype) {
    return cpu::MatrixBytes(out, in, dtype, cpu::Bf16Order::kSingle);
  };
  ops.pack_rows = [](PackedMatrix& matrix, int64_t first_row, const HostTensorView& source,
                     QuantizationError* error) {
    return cpu::PackRows(matrix, first_row, source, error, cpu::Bf16Order::kSingle);
  };
  ops.linear = [](Stream& s, const LinearParams& p) {
    return cpu::Linear(kIsa(), AsCpuStream(s), p);
  };
  ops.embed = [](Stream& s, const EmbedParams& p) {
    return cpu::Embed(AsCpuStream(s), p, cpu::Bf16Order::kSingle);
  };
  ops.norm = [](Stream& s, const NormParams& p) { return cpu::Norm(kIsa(), AsCpuStream(s), p); };
  ops.gated_mul = [](Stream& s, const GatedMulParams& p) {
    return cpu::GatedMul(kIsa(), AsCpuStream(s), p);
  };
  ops.scale = [](Stream& s, const ScaleParams& p) { return cpu::Scale(kIsa(), AsCpuStream(s), p); };
  ops.soft_cap = [](Stream& s, const SoftCapParams& p) {
    return cpu::SoftCap(kIsa(), AsCpuStream(s), p);
  };
  ops.rope_table = [](Stream& s, const RopeTableParams& p) {
    return cpu::RopeTable(kIsa(), AsCpuStream(s), p);
  };
  ops.rope = [](Stream& s, const RopeParams& p) { return cpu::Rope(kIsa(), AsCpuStream(s), p); };
  ops.kv_append = [](Stream& s, const KvAppendParams& p) {
    return cpu::KvAppend(kIsa(), AsCpuStream(s), p);
  };
  ops.kv_read = [](Stream& s, const KvReadParams& p) {
    return cpu::KvRead(kIsa(), AsCpuStream(s), p);
  };
  ops.attention = [](Stream& s, const AttentionParams& p) {
    return cpu::Attention(kIsa(), AsCpuStream(s), p);
  };
  ops.block_scores = [](Stream& s, const BlockScoresParams& p) {
    return cpu::BlockScores(kIsa(), nullptr, AsCpuStream(s), p);
  };
  ops.score_sums = [](Stream& s, const ScoreSumsParams& p) {
    return cpu::ScoreSums(kIsa(), AsCpuStream(s), p);
  };
  ops.block_masses = [](Stream& s, const BlockMassesParams& p) {
    return cpu::BlockMasses(AsCpuStream(s), p);
  };
  ops.key_summary = [](Stream& s, const KeySummaryParams& p) {
    return cpu::KeySummary(kIsa(), AsCpuStream(s), p);
  };
  ops.summary_scores = [](Stream& s, const SummaryScoresParams& p) {
    return cpu::SummaryScores(kIsa(), AsCpuStream(s), p);
  };
  ops.row_means = [](Stream& s, const RowMeansParams& p) {
    return cpu::RowMeans(AsCpuStream(s), p);
  };
  ops.merge_state = [](Stream& s, const MergeStateParams& p) {
    return cpu::MergeState(kIsa(), AsCpuStream(s), p);
  };
  ops.merge_sink = [](Stream& s, const MergeSinkParams& p) {
    return cpu::MergeSink(kIsa(), AsCpuStream(s), p);
  };
  ops.route = [](Stream& s, const RouteParams& p) { return cpu::Route(AsCpuStream(s), p); };
  ops.expert_linear = [](Stream& s, const ExpertLinearParams& p) {
    return cpu::ExpertLinear(AsCpuStream(s), p, [](Stream& stream, const LinearParams& linear) {
      return cpu::Linear(kIsa(), AsCpuStream(stream), linear);
    });
  };
  ops.add_choices = [](Stream& s, const AddChoicesParams& p) {
    return cpu::AddChoices(kIsa(), AsCpuStream(s), p);
  };
  ops.gather_rows = [](Stream& s, const GatherRowsParams& p) {
    return cpu::GatherRows(AsCpuStream(s), p);
  };
  ops.scatter_add = [](Stream& s, const ScatterAddParams& p) {
    return cpu::ScatterAdd(kIsa(), AsCpuStream(s), p);
  };
  ops.predict_streams = [](Stream& s, const PredictStreamsParams& p) {
    return cpu::PredictStreams(kIsa(), AsCpuStream(s), p);
  };
  ops.correct_streams = [](Stream& s, const CorrectStreamsParams& p) {
    return cpu::CorrectStreams(kIsa(), AsCpuStream(s), p);
  };
  ops.match_magnitude = [](Stream& s, const MatchMagnitudeParams& p) {
    return cpu::MatchMagnitude(kIsa(), AsCpuStream(s), p);
  };
  ops.cut_off = [](Stream& s, const CutOffParams& p) { return cpu::CutOff(AsCpuStream(s), p); };
  return ops;
}

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_REGISTER_SIMD_H_
