#include "engine/base/process_memory.h"

#include <fstream>
#include <sstream>

namespace annulus {

ProcessMemory ReadProcessMemory(const std::string& file) {
  ProcessMemory memory;
  int64_t huge = 0;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    int64_t kilobytes = 0;
    if (!(fields >> name >> kilobytes)) continue;
    if (name == "VmRSS:") memory.resident = kilobytes << 10;
    if (name == "VmHWM:") memory.resident_most = kilobytes << 10;
    if (name == "HugetlbPages:") huge = kilobytes << 10;
  }
  memory.resident += huge;
  memory.resident_most += huge;
  return memory;
}

}  // namespace annulus
