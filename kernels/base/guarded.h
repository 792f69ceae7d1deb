#ifndef ANNULUS_KERNELS_BASE_GUARDED_H_
#define ANNULUS_KERNELS_BASE_GUARDED_H_

#include <new>
#include <stdexcept>

#include "absl/status/status.h"

namespace annulus {

// Runs `work`, a part of handling one request. If an allocation fails, returns what `out_of_memory`
// returns instead of letting std::bad_alloc end the process. std::length_error, thrown for sizes
// that no allocation could have, is treated the same.
template <typename Work, typename OutOfMemory>
absl::Status Guarded(Work&& work, OutOfMemory&& out_of_memory) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return out_of_memory();
}

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_GUARDED_H_
