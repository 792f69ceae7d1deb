// cuda_backend.h in a binary that was built without CUDA.
#include "absl/status/status.h"
#include "kernels/cuda/cuda_backend.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int, const CudaBackendOptions&) {
  return absl::FailedPreconditionError(
      "this build has no CUDA; build on a machine that has the CUDA toolkit, or use --device cpu");
}

absl::StatusOr<std::unique_ptr<Backend>> PlanCudaBackends(absl::string_view, size_t, int) {
  return absl::FailedPreconditionError(
      "this build has no CUDA, so it cannot plan memory for GPUs; build on a machine that has the "
      "CUDA toolkit, or plan with --device cpu");
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackends(int, const CudaBackendOptions&) {
  return CreateCudaBackend(0);
}

void RegisterCudaKernels(KernelRegistry&) {}

}  // namespace annulus
