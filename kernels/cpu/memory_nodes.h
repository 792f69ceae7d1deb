#ifndef ANNULUS_KERNELS_CPU_MEMORY_NODES_H_
#define ANNULUS_KERNELS_CPU_MEMORY_NODES_H_

// NUMA: groups of processors with memory that is nearer to them than to others.

#include <string>
#include <vector>

#include "kernels/cpu/processors.h"

namespace annulus {

struct MemoryNode {
  int number = 0;         // as the system counts, ascending; gaps are possible
  Processors processors;  // that this process may use; never empty
};

// The nodes that have processors for this process, or none where the system does not tell nodes
// apart. `root` is put before /sys paths, so that tests can show another machine's files; the
// affinity mask is always this machine's.
std::vector<MemoryNode> ReadMemoryNodes(const std::string& root = "");

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_MEMORY_NODES_H_
