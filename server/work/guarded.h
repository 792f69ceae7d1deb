#ifndef ANNULUS_SERVER_WORK_GUARDED_H_
#define ANNULUS_SERVER_WORK_GUARDED_H_

#include <utility>

#include "kernels/base/guarded.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// Runs `work`, a part of handling one call. Turns a failed allocation into OutOfMemoryError.
template <typename Work>
absl::Status Guarded(Work&& work) {
  return annulus::Guarded(std::forward<Work>(work), OutOfMemoryError);
}

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_WORK_GUARDED_H_
