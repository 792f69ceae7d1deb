#ifndef ANNULUS_KERNELS_CPU_CPU_BACKEND_H_
#define ANNULUS_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/host_memory.h"

namespace annulus {

struct CpuBackendOptions {
  HugePages huge_pages = HugePages::kAuto;  // for blocks of at least one of them
  bool use_nodes = true;                    // false: one node, memory and threads anywhere
  // Of all streams together: an op may have more than its stream's own threads while other streams
  // leave theirs idle. 0: as many as the process may use. 1: none are lent.
  int shared_threads = 1;
  std::string root = {};  // before /sys and /proc paths, for tests
};

// Host memory and threads. Allocations are aligned to 64 bytes; large ones are mapped, so that
// pages never touched cost no resident memory and freed ones go back to the system at once. A
// request beyond capabilities().memory_bytes is refused. Streams are CpuStreams; Copy is done when
// it returns. On a machine with several memory nodes OnNode gives memory of one node and threads
// bound to its processors; what is allocated here, for all, is spread over the nodes page by page.
// FAILED_PRECONDITION where huge pages are asked for that the machine has not.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options = {});

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_CPU_BACKEND_H_
