#include "kernels/cpu/host/host_limits.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/host/control_groups.h"
#include "kernels/cpu/host/processors.h"

namespace annulus {
namespace {

int AffinityThreads() {
  const Processors usable = UsableProcessors();
  if (!usable.empty()) return static_cast<int>(usable.size());
  return std::max<int>(1, sysconf(_SC_NPROCESSORS_ONLN));
}

std::string ProcessorName(const std::string& root) {
  std::ifstream file(absl::StrCat(root, "/proc/cpuinfo"));
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (absl::StartsWith(line, "model name") && colon != std::string::npos) {
      return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
    }
  }
  utsname names;
  return uname(&names) == 0 ? names.machine : "unknown processor";
}

}  // namespace

HostLimits ReadHostLimits(const std::string& root) {
  HostLimits limits;
  limits.threads = AffinityThreads();
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && page_bytes > 0) {
    limits.memory_bytes = static_cast<size_t>(pages) * static_cast<size_t>(page_bytes);
  }
  const ControlGroupLimits groups = ReadControlGroups(root);
  limits.threads = std::min(limits.threads, groups.threads.value_or(limits.threads));
  if (groups.memory_bytes.has_value() &&
      (limits.memory_bytes == 0 || *groups.memory_bytes < limits.memory_bytes)) {
    limits.memory_bytes = static_cast<size_t>(*groups.memory_bytes);
  }
  limits.processor = ProcessorName(root);
  return limits;
}

}  // namespace annulus
