#ifndef ANNULUS_KERNELS_CPU_HOST_HOST_LIMITS_H_
#define ANNULUS_KERNELS_CPU_HOST_HOST_LIMITS_H_

#include <cstddef>
#include <string>

namespace annulus {

// What this process may use of the machine: the least of the hardware, the scheduler's affinity
// mask and the control groups around the process (control_groups.h).
struct HostLimits {
  int threads = 1;          // >= 1; fractional quotas are rounded up
  size_t memory_bytes = 0;  // 0 if the system does not say
  std::string processor;    // the vendor's name for it, else the kernel's name of the architecture
};

// Reads the limits. `root` is prepended to /proc and /sys paths, so that tests can use another
// machine's files; the affinity mask and the physical memory are always this machine's.
HostLimits ReadHostLimits(const std::string& root = "");

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_HOST_HOST_LIMITS_H_
