#ifndef ANNULUS_KERNELS_CUDA_CUDA_BACKEND_H_
#define ANNULUS_KERNELS_CUDA_CUDA_BACKEND_H_

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/registry.h"

namespace annulus {

struct CudaBackendOptions {
  // How long the host may wait for a GPU. Beyond it the backend's GPUs count as lost, as after any
  // error that a GPU does not survive: that wait and all later calls return UNAVAILABLE, and memory
  // stays allocated until the process ends, because a kernel may still write to it. It need not
  // cover a whole step: the engine waits after every few layers.
  std::chrono::milliseconds longest_wait{600'000};
};

// Creates the backend of the GPU with the given ordinal. FAILED_PRECONDITION, with what to do, if
// this binary was built without CUDA, if the driver is missing or too old, if there is no such GPU,
// if it is older than compute capability 8.0, or if this binary has no code for its architecture.
// The host cannot read Allocate's memory; AllocateHost's memory is pinned. Copy and all ops are
// enqueued. CreateStream ignores `threads`. If cuBLASLt cannot be loaded, slower kernels of our own
// multiply, and the description says why; if it lacks fp8 products, our kernels do those.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int ordinal,
                                                           const CudaBackendOptions& options = {});

// Creates one backend of the first `most` suitable GPUs, at least one; Backend::OnDevice gives each
// of them. Skips GPUs older than compute capability 8.0 and GPUs that are not of the same kind as
// the first. Errors as above.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackends(int most,
                                                            const CudaBackendOptions& options = {});

// A backend for planning with `count` GPUs that need not be present (MakePlannedBackend). `kind` is
// a name such as "h100-80gb". `memory_bytes` is the memory of each; 0 means what the kind has.
// INVALID_ARGUMENT, with the known kinds, if the kind is unknown; FAILED_PRECONDITION if this
// binary was built without CUDA.
absl::StatusOr<std::unique_ptr<Backend>> PlanCudaBackends(absl::string_view kind,
                                                          size_t memory_bytes, int count);

// Registers the kernels of the backend "cuda" that this binary has: none if it was built without
// CUDA, else "cuda/sm80" and "cuda/sm90", which is preferred on GPUs of compute capability 9.0.
// They support all weight dtypes, keys and values in all dtypes of whole bytes, and head_dim up to
// 256.
void RegisterCudaKernels(KernelRegistry& registry);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CUDA_CUDA_BACKEND_H_
