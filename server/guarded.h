#ifndef ANNULUS_SERVER_GUARDED_H_
#define ANNULUS_SERVER_GUARDED_H_

#include <new>
#include <stdexcept>

#include "absl/status/status.h"
#include "server/call_memory.h"

namespace annulus {

// Runs `work`, a part of handling one call. A failed allocation, which would end the process if it
// left a thread, becomes the call's status: RESOURCE_EXHAUSTED. std::length_error is the same for
// sizes that no allocation could have.
template <typename Work>
absl::Status Guarded(Work&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return OutOfMemoryError();
}

}  // namespace annulus

#endif  // ANNULUS_SERVER_GUARDED_H_
