#ifndef ANNULUS_ENGINE_CLOCKED_ENGINE_H_
#define ANNULUS_ENGINE_CLOCKED_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "engine/base/clock.h"

namespace annulus {

// CreateEngine with another clock than the machine's, for tests. Everything the engine decides by
// time goes by `clock`, which must outlive it: deadlines, times to live, paces, timeouts of ranks
// and disks, and what steps are expected to take. So all times in a RequestSpec are the clock's. A
// device's library still waits by the machine's clock.
absl::StatusOr<std::unique_ptr<Engine>> CreateClockedEngine(const EngineOptions& options,
                                                            Backend& backend,
                                                            const KernelRegistry& kernels,
                                                            const Clock& clock);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_CLOCKED_ENGINE_H_
