#ifndef ANNULUS_KERNELS_CPU_CONTROL_GROUPS_H_
#define ANNULUS_KERNELS_CPU_CONTROL_GROUPS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace annulus {

// What Linux control groups (cgroups(7)) allow this process. Absent: no limit that can be seen.
struct ControlGroupLimits {
  std::optional<uint64_t> memory_bytes;  // >= 1
  std::optional<int> threads;            // >= 1; a fractional quota is rounded up
};

// Reads version 2, version 1 and hosts that mount both. Every group from the process' own up to the
// root of its hierarchy can limit it, so the least value on the way counts; where a container sees
// only a part of the hierarchy, that part counts. In version 2, memory.high counts like memory.max:
// a process above it is not killed, but it hardly moves on. `root` is put before all paths, so that
// tests can show another machine's files.
ControlGroupLimits ReadControlGroups(const std::string& root = "");

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_CONTROL_GROUPS_H_
