#ifndef ANNULUS_KERNELS_BASE_GPU_KINDS_H_
#define ANNULUS_KERNELS_BASE_GPU_KINDS_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// What a plan needs to know of a GPU that is not there.
struct GpuKind {
  const char* name;  // "h100-80gb"
  const char* description;
  int major;  // compute capability
  int minor;
  int multiprocessors;
  size_t shared_bytes;  // that one block may ask for
  size_t memory_bytes;  // that CUDA shows, rounded down: less than what is printed on the box
};

// Null where no kind has that name.
const GpuKind* FindGpuKind(absl::string_view name);

// "a10, a100-40gb, ..": for messages.
std::string GpuKindNames();

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_GPU_KINDS_H_
