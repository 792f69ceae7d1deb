#ifndef ANNULUS_KERNELS_PLANNED_BACKEND_H_
#define ANNULUS_KERNELS_PLANNED_BACKEND_H_

#include <functional>
#include <memory>

#include "kernels/backend.h"

namespace annulus {

// A backend for a device that need not be present: it reports capabilities and workspace needs for
// planning, but gives no memory and no streams (UNIMPLEMENTED). All its devices are this one.
// `workspace` implements Backend::PlanWorkspace; leave it empty if ops work on the host's heap.
// Thread-safe if `workspace` is.
std::unique_ptr<Backend> MakePlannedBackend(
    BackendCapabilities capabilities,
    std::function<WorkspaceBytes(const WorkShape& most)> workspace = {});

}  // namespace annulus

#endif  // ANNULUS_KERNELS_PLANNED_BACKEND_H_
