#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/dot_linear.h"
#include "kernels/cpu/register_entries.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/cpu/x86_features.h"

namespace annulus {
namespace {

// An OpTable of the SIMD drivers over one instruction set's kernels.
template <const cpu::SimdKernels& (*kIsa)()>
OpTable SimdOps(const char* name) {
  OpTable ops;
  ops.name = name;
  ops.kv_page_bytes = [](const KvPageShape& shape) { return cpu::KvPageBytes(kIsa(), shape); };
  ops.create_matrix = [](Backend& backend, int64_t out, int64_t in, DType dtype) {
    return cpu::CreateMatrix(backend, out, in, dtype, cpu::Bf16Order::kSingle);
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
  ops.rms_norm = [](Stream& s, const RmsNormParams& p) {
    return cpu::RmsNorm(kIsa(), AsCpuStream(s), p);
  };
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
  ops.key_summary = [](Stream& s, const KeySummaryParams& p) {
    return cpu::KeySummary(kIsa(), AsCpuStream(s), p);
  };
  ops.summary_scores = [](Stream& s, const SummaryScoresParams& p) {
    return cpu::SummaryScores(kIsa(), AsCpuStream(s), p);
  };
  ops.merge_state = [](Stream& s, const MergeStateParams& p) {
    return cpu::MergeState(kIsa(), AsCpuStream(s), p);
  };
  ops.merge_sink = [](Stream& s, const MergeSinkParams& p) {
    return cpu::MergeSink(kIsa(), AsCpuStream(s), p);
  };
  ops.route = [](Stream& s, const RouteParams& p) { return cpu::Route(AsCpuStream(s), p); };
  ops.gather_rows = [](Stream& s, const GatherRowsParams& p) {
    return cpu::GatherRows(AsCpuStream(s), p);
  };
  ops.scatter_add = [](Stream& s, const ScatterAddParams& p) {
    return cpu::ScatterAdd(kIsa(), AsCpuStream(s), p);
  };
  return ops;
}

// AVX-512 with attention by tiles.
const cpu::SimdKernels& AmxKernels() {
  static const cpu::SimdKernels kernels = [] {
    cpu::SimdKernels result = cpu::Avx512Bf16Kernels();
    result.paired = &cpu::AmxAttentionKernels();
    return result;
  }();
  return kernels;
}

// The table of `kIsa` with linear layers by dot products of bf16.
template <const cpu::DotKernels& (*kDot)(), const cpu::SimdKernels& (*kIsa)()>
OpTable DotOps(const char* name) {
  OpTable ops = SimdOps<kIsa>(name);
  ops.create_matrix = [](Backend& backend, int64_t out, int64_t in, DType dtype) {
    return cpu::CreateMatrix(backend, out, in, dtype, cpu::Bf16Order::kPairs);
  };
  ops.pack_rows = [](PackedMatrix& matrix, int64_t first_row, const HostTensorView& source,
                     QuantizationError* error) {
    return cpu::PackRows(matrix, first_row, source, error, cpu::Bf16Order::kPairs);
  };
  ops.linear = [](Stream& s, const LinearParams& p) {
    return cpu::DotLinear(kDot(), kIsa(), AsCpuStream(s), p);
  };
  ops.embed = [](Stream& s, const EmbedParams& p) {
    return cpu::Embed(AsCpuStream(s), p, cpu::Bf16Order::kPairs);
  };
  ops.block_scores = [](Stream& s, const BlockScoresParams& p) {
    return cpu::BlockScores(kIsa(), &kDot(), AsCpuStream(s), p);
  };
  return ops;
}

KernelEntry X86Entry(OpTable ops, int priority, const std::vector<X86Feature>& features) {
  KernelEntry entry = CpuEntry(std::move(ops), priority);
  const std::string missing = MissingFeatures(features);
  entry.available = missing.empty();
  if (!entry.available) {
    entry.unavailable_reason = absl::StrCat("the processor instructions ", missing);
  }
  return entry;
}

}  // namespace

void RegisterX86Kernels(KernelRegistry& registry) {
  registry.Register(X86Entry(SimdOps<cpu::Avx2Kernels>("cpu/avx2"), 10, Avx2Features()));
  registry.Register(X86Entry(SimdOps<cpu::Avx512Kernels>("cpu/avx512"), 20, Avx512Features()));
  KernelEntry dot =
      X86Entry(DotOps<cpu::Avx512Bf16DotKernels, cpu::Avx512Bf16Kernels>("cpu/avx512-bf16"), 30,
               Avx512Bf16Features());
  KernelEntry amx = X86Entry(DotOps<cpu::AmxDotKernels, AmxKernels>("cpu/amx"), 40, AmxFeatures());
  dot.int8_activations = amx.int8_activations = true;
  registry.Register(std::move(dot));
  registry.Register(std::move(amx));
}

}  // namespace annulus
