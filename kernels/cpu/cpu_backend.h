#ifndef ANNULUS_KERNELS_CPU_CPU_BACKEND_H_
#define ANNULUS_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace annulus {

// Host memory and threads. Allocations are aligned to 64 bytes; large ones are mapped, so that
// pages never touched cost no resident memory and freed ones go back to the system at once. A
// request beyond capabilities().memory_bytes is refused. Streams are CpuStreams; Copy is done when
// it returns.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend();

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_CPU_BACKEND_H_
