#ifndef ANNULUS_ENGINE_BASE_PROCESS_MEMORY_H_
#define ANNULUS_ENGINE_BASE_PROCESS_MEMORY_H_

#include <cstdint>
#include <string>

namespace annulus {

// Memory of the process as the system counts it, in bytes; 0 if it does not say.
struct ProcessMemory {
  int64_t resident = 0;
  int64_t resident_most = 0;  // since the process started
};

// Reads a file in the format of /proc/self/status (proc(5)). Explicit huge pages, which the system
// counts separately, are added to `resident`.
ProcessMemory ReadProcessMemory(const std::string& file = "/proc/self/status");

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_PROCESS_MEMORY_H_
