#include "kernels/cpu/register.h"

#include <utility>

#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/register_entries.h"
#include "kernels/ops/checks.h"

namespace annulus {

KernelEntry CpuEntry(OpTable ops, int priority) {
  KernelEntry entry;
  entry.ops = std::move(ops);
  entry.backend = "cpu";
  entry.priority = priority;
  entry.weights_dtypes = {DType::kF32,    DType::kBF16, DType::kF16,   DType::kF8E4M3,
                          DType::kF8E5M2, DType::kI8,   DType::kI4G32, DType::kI4G64,
                          DType::kQ8_0,   DType::kQ4_0, DType::kQ4_1};
  entry.activations = {Activations::kFloat, Activations::kFp8};
  entry.kv_dtypes = {DType::kF32,    DType::kBF16,   DType::kF16,
                     DType::kF8E4M3, DType::kF8E5M2, DType::kI8};
  entry.max_head_dim = kMaxHeadDim;
  return entry;
}

void RegisterCpuKernels(KernelRegistry& registry) {
  KernelEntry reference = CpuEntry(reference::Ops(), 0);
  reference.activations.push_back(Activations::kInt8);
  registry.Register(std::move(reference));
#if defined(ANNULUS_CPU_X86)
  RegisterX86Kernels(registry);
#elif defined(ANNULUS_CPU_NEON)
  RegisterNeonKernels(registry);
#endif
}

}  // namespace annulus
