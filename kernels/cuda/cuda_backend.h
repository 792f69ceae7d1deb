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
  // Of the host for a GPU. Beyond it the GPUs of the backend are lost, as by any error that a GPU
  // does not survive: that wait and all calls from then on are UNAVAILABLE, and memory is kept
  // until the process ends, as a kernel may still write to it. An engine waits for a few layers of
  // a step at a time.
  std::chrono::milliseconds longest_wait{600'000};
};

// The GPU with the given ordinal. FAILED_PRECONDITION, with what to do, where this binary was built
// without CUDA, the driver is missing or too old, there is no GPU of that ordinal, it is older than
// compute capability 8.0, or this binary has no code for its architecture. Memory is the device's
// and not readable by the host, and that of AllocateHost is pinned; Copy and all ops are enqueued.
// The streams' `threads` has no meaning here. Where cuBLASLt cannot be loaded, own kernels
// multiply, more slowly, and the description says why; where it cannot multiply fp8, they do that.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int ordinal,
                                                           const CudaBackendOptions& options = {});

// The first `most` GPUs that will do, at least one, as one backend: Backend::OnDevice gives each.
// Those of another kind than the first, or older than 8.0, are passed over. Errors as above.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackends(int most,
                                                            const CudaBackendOptions& options = {});

// `count` GPUs of a kind by its name ("h100-80gb"), with so much memory each (0: what the kind
// has), that need not be there: see MakePlannedBackend. INVALID_ARGUMENT: not a kind that is known,
// with those that are. FAILED_PRECONDITION: this binary was built without CUDA.
absl::StatusOr<std::unique_ptr<Backend>> PlanCudaBackends(absl::string_view kind,
                                                          size_t memory_bytes, int count);

// Adds what this binary has for the backend "cuda": nothing where it was built without CUDA, else
// "cuda/sm80" and, to be chosen first where a GPU has compute capability 9.0, "cuda/sm90". All
// weight dtypes; keys and values in all with whole bytes; head_dim up to 256.
void RegisterCudaKernels(KernelRegistry& registry);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CUDA_CUDA_BACKEND_H_
