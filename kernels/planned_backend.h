#ifndef ANNULUS_KERNELS_PLANNED_BACKEND_H_
#define ANNULUS_KERNELS_PLANNED_BACKEND_H_

#include <functional>
#include <memory>

#include "kernels/backend.h"

namespace annulus {

// A device that is only talked about: it has capabilities and says what kernels would take, and
// gives neither memory nor streams (UNIMPLEMENTED). All its devices are this one. `workspace`: see
// Backend::PlanWorkspace; empty where ops work in the host's heap. Thread-safe if `workspace` is.
std::unique_ptr<Backend> MakePlannedBackend(
    BackendCapabilities capabilities,
    std::function<WorkspaceBytes(const WorkShape& most)> workspace = {});

}  // namespace annulus

#endif  // ANNULUS_KERNELS_PLANNED_BACKEND_H_
