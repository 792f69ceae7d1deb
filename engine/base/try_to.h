#ifndef ANNULUS_ENGINE_BASE_TRY_TO_H_
#define ANNULUS_ENGINE_BASE_TRY_TO_H_

#include "absl/status/status.h"
#include "kernels/base/guarded.h"

namespace annulus {

// Runs `work`, which returns nothing and may be left undone. Returns false if an allocation failed:
// the work stopped there. Allocates nothing itself. See Guarded.
template <typename Work>
bool TryTo(const Work& work) {
  const auto run = [&] {
    work();
    return absl::OkStatus();
  };
  const auto no_memory = [] { return absl::Status(absl::StatusCode::kResourceExhausted, ""); };
  return Guarded(run, no_memory).ok();
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_TRY_TO_H_
