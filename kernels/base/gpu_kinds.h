#ifndef ANNULUS_KERNELS_BASE_GPU_KINDS_H_
#define ANNULUS_KERNELS_BASE_GPU_KINDS_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// The properties of a GPU model, for planning on a machine that does not have one.
struct GpuKind {
  const char* name;  // "h100-80gb"
  const char* description;
  int major;  // compute capability
  int minor;
  int multiprocessors;
  size_t shared_bytes;  // the most shared memory that one block may use
  size_t memory_bytes;  // as CUDA reports it, rounded down: less than the nominal size
};

// Returns null if no kind has that name.
const GpuKind* FindGpuKind(absl::string_view name);

// All names for messages: "a10, a100-40gb, ..".
std::string GpuKindNames();

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_GPU_KINDS_H_
