#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/register_entries.h"
#include "kernels/cpu/simd_ops.h"

namespace annulus {
namespace {

// An OpTable of the SIMD drivers over one instruction set's kernels.
template <const cpu::SimdKernels& (*kIsa)()>
OpTable SimdOps(const char* name) {
  OpTable ops;
  ops.name = name;
  ops.kv_page_bytes = [](const KvPageShape& shape) { return cpu::KvPageBytes(kIsa(), shape); };
  ops.pack_matrix = cpu::PackMatrix;
  ops.linear = [](Stream& s, const LinearParams& p) {
    return cpu::Linear(kIsa(), AsCpuStream(s), p);
  };
  ops.embed = [](Stream& s, const EmbedParams& p) { return cpu::Embed(kIsa(), AsCpuStream(s), p); };
  ops.rms_norm = [](Stream& s, const RmsNormParams& p) {
    return cpu::RmsNorm(kIsa(), AsCpuStream(s), p);
  };
  ops.silu_mul = [](Stream& s, const SiluMulParams& p) {
    return cpu::SiluMul(kIsa(), AsCpuStream(s), p);
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
  ops.merge_state = [](Stream& s, const MergeStateParams& p) {
    return cpu::MergeState(kIsa(), AsCpuStream(s), p);
  };
  return ops;
}

struct Feature {
  const char* name;
  bool present;
};

KernelEntry SimdEntry(OpTable ops, int priority, const std::vector<Feature>& features) {
  KernelEntry entry = CpuEntry(std::move(ops), priority);
  std::vector<std::string> missing;
  for (const Feature& feature : features) {
    if (!feature.present) missing.push_back(feature.name);
  }
  entry.available = missing.empty();
  if (!entry.available) {
    entry.unavailable_reason =
        absl::StrCat("the processor instructions ", absl::StrJoin(missing, ", "));
  }
  return entry;
}

}  // namespace

void RegisterX86Kernels(KernelRegistry& registry) {
  // __builtin_cpu_supports also asks whether the operating system saves the wide registers.
  __builtin_cpu_init();
  std::vector<Feature> features = {{"AVX2", __builtin_cpu_supports("avx2") != 0},
                                   {"FMA", __builtin_cpu_supports("fma") != 0},
                                   {"F16C", __builtin_cpu_supports("f16c") != 0}};
  registry.Register(SimdEntry(SimdOps<cpu::Avx2Kernels>("cpu/avx2"), 10, features));
  features.push_back({"AVX512F", __builtin_cpu_supports("avx512f") != 0});
  features.push_back({"AVX512BW", __builtin_cpu_supports("avx512bw") != 0});
  features.push_back({"AVX512DQ", __builtin_cpu_supports("avx512dq") != 0});
  features.push_back({"AVX512VL", __builtin_cpu_supports("avx512vl") != 0});
  registry.Register(SimdEntry(SimdOps<cpu::Avx512Kernels>("cpu/avx512"), 20, features));
  features.push_back({"AVX512_BF16", __builtin_cpu_supports("avx512bf16") != 0});
  registry.Register(SimdEntry(SimdOps<cpu::Avx512Bf16Kernels>("cpu/avx512-bf16"), 30, features));
}

}  // namespace annulus
