#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/host/x86_features.h"
#include "kernels/cpu/register_entries.h"
#include "kernels/cpu/register_simd.h"
#include "kernels/cpu/simd/dot_linear.h"
#include "kernels/cpu/simd/ops.h"

namespace annulus {
namespace {

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
  ops.matrix_bytes = [](int64_t out, int64_t in, DType dtype) {
    return cpu::MatrixBytes(out, in, dtype, cpu::Bf16Order::kPairs);
  };
  ops.pack_rows = [](PackedMatrix& matrix, int64_t first_row, const HostTensorView& source,
                     QuantizationError* error) {
    return cpu::PackRows(matrix, first_row, source, error, cpu::Bf16Order::kPairs);
  };
  ops.linear = [](Stream& s, const LinearParams& p) {
    return cpu::DotLinears(kDot(), kIsa(), AsCpuStream(s), {&p, 1});
  };
  ops.linears = [](Stream& s, std::span<const LinearParams> parts) {
    return cpu::DotLinears(kDot(), kIsa(), AsCpuStream(s), parts);
  };
  ops.gated_block = [](Stream& s, const GatedBlockParams& p) {
    return cpu::DotGatedBlock(kDot(), kIsa(), AsCpuStream(s), p);
  };
  // Fewer rows wait for weights, in one stream of reads for each matrix.
  ops.gated_block_rows = 64;
  ops.expert_linear = [](Stream& s, const ExpertLinearParams& p) {
    return cpu::ExpertLinear(AsCpuStream(s), p, [](Stream& stream, const LinearParams& linear) {
      return cpu::DotLinears(kDot(), kIsa(), AsCpuStream(stream), {&linear, 1});
    });
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
  dot.activations.push_back(Activations::kInt8);
  amx.activations.push_back(Activations::kInt8);
  registry.Register(std::move(dot));
  registry.Register(std::move(amx));
}

}  // namespace annulus
