#ifndef ANNULUS_ENGINE_BASE_PROCESS_MEMORY_H_
#define ANNULUS_ENGINE_BASE_PROCESS_MEMORY_H_

#include <cstdint>
#include <string>

namespace annulus {

// What the system says of the process, in bytes; 0 where it does not say.
struct ProcessMemory {
  int64_t resident = 0;
  int64_t resident_most = 0;  // since the process started
};

// Reads a file of the form of /proc/self/status (proc(5)). Explicit huge pages, which the system
// counts apart, are part of what is resident.
ProcessMemory ReadProcessMemory(const std::string& file = "/proc/self/status");

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_PROCESS_MEMORY_H_
