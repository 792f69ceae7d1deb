#ifndef ANNULUS_ENGINE_BASE_PROCESS_MEMORY_H_
#define ANNULUS_ENGINE_BASE_PROCESS_MEMORY_H_

#include <string>

#include "engine/api.h"

namespace annulus {

// Reads a file of the form of /proc/self/status (proc(5)). Explicit huge pages, which the system
// counts apart, are part of what is resident.
ProcessMemory ReadProcessMemory(const std::string& file = "/proc/self/status");

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_PROCESS_MEMORY_H_
