#ifndef ANNULUS_KERNELS_CPU_HOST_MEMORY_NODES_H_
#define ANNULUS_KERNELS_CPU_HOST_MEMORY_NODES_H_

// NUMA nodes: groups of processors with memory that is nearer to them than to others.

#include <string>
#include <vector>

#include "kernels/cpu/host/processors.h"

namespace annulus {

struct MemoryNode {
  int number = 0;         // the system's number, ascending; gaps are possible
  Processors processors;  // usable by this process; never empty
};

// Lists the nodes that have processors for this process; empty if the system reports no nodes.
// `root` is prepended to /sys paths, so that tests can use another machine's files; the affinity
// mask is always this machine's.
std::vector<MemoryNode> ReadMemoryNodes(const std::string& root = "");

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_HOST_MEMORY_NODES_H_
