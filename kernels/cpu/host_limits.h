#ifndef ANNULUS_KERNELS_CPU_HOST_LIMITS_H_
#define ANNULUS_KERNELS_CPU_HOST_LIMITS_H_

#include <cstddef>
#include <string>

namespace annulus {

// What this process may use of the machine: the smaller of what the hardware has and what the
// scheduler's affinity mask and the control groups around the process (control_groups.h) allow.
struct HostLimits {
  int threads = 1;          // >= 1; a fractional quota is rounded up
  size_t memory_bytes = 0;  // 0 where the system does not say
  std::string processor;    // as its vendor names it, else the kernel's name of the architecture
};

// Reads the limits. `root` is put before /proc and /sys paths, so that tests can show another
// machine's files; the affinity mask and the physical memory are always this machine's.
HostLimits ReadHostLimits(const std::string& root = "");

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_HOST_LIMITS_H_
