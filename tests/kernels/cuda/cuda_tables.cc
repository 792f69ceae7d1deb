// The tested tables are those of the first GPU: an emulated one, or where the CUDA runtime is
// linked (gpu_main.cc) a real one. They differ in attention and in what they leave to a library.
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

const KernelRegistry& CudaRegistry() {
  static const KernelRegistry* const registry = [] {
    auto* filled = new KernelRegistry();
    RegisterCudaKernels(*filled);
    return filled;
  }();
  return *registry;
}

}  // namespace

std::vector<const OpTable*> TestedTables() { return {TestedAttention().front()}; }
std::vector<const OpTable*> TestedAttention() { return CudaRegistry().Available("cuda"); }

Backend& BackendOf(const OpTable& table) {
  static Backend* const gpu = CreateCudaBackend(0).value().release();
  return table.name == "cpu/reference" ? CpuBackend() : *gpu;
}

}  // namespace annulus::testing
