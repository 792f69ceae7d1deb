#ifndef ANNULUS_KERNELS_CPU_HOST_CONTROL_GROUPS_H_
#define ANNULUS_KERNELS_CPU_HOST_CONTROL_GROUPS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace annulus {

// The limits that Linux control groups (cgroups(7)) set for this process. nullopt: no visible
// limit.
struct ControlGroupLimits {
  std::optional<uint64_t> memory_bytes;  // >= 1
  std::optional<int> threads;            // >= 1; fractional quotas are rounded up
};

// Reads cgroup version 2, version 1, and hosts that mount both. Every group from the process's own
// up to the root of its hierarchy can limit it, so this returns the least limit on that path, or on
// the part of it that a container can see. In version 2, memory.high counts like memory.max: a
// process above it is not killed, but is throttled almost to a halt. `root` is prepended to all
// paths, so that tests can use another machine's files.
ControlGroupLimits ReadControlGroups(const std::string& root = "");

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_HOST_CONTROL_GROUPS_H_
