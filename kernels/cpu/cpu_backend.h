#ifndef ANNULUS_KERNELS_CPU_CPU_BACKEND_H_
#define ANNULUS_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/host/host_memory.h"

namespace annulus {

struct CpuBackendOptions {
  HugePages huge_pages = HugePages::kAuto;  // for blocks at least as large as one huge page
  bool use_nodes = true;  // false: a single node; memory and threads may be anywhere
  // Threads of all streams together. While other streams are idle, an op may use more threads than
  // its own stream has, up to this total. 0: as many as the process may use. 1: streams do not lend
  // threads.
  int shared_threads = 1;
  std::string root = {};  // prepended to /sys and /proc paths, for tests
};

// Creates the backend for host memory and threads. Its streams are CpuStreams, and Copy has
// finished when it returns. Allocations are aligned to 64 bytes. Large ones are mapped, so
// untouched pages use no memory, and freed ones return to the system at once. Requests beyond
// capabilities().memory_bytes are refused. On a machine with several memory nodes, OnNode gives
// memory on one node and threads bound to its processors; memory allocated from this backend itself
// is interleaved over all nodes. FAILED_PRECONDITION if the options ask for huge pages that the
// machine does not have.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options = {});

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_CPU_BACKEND_H_
