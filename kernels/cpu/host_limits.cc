#include "kernels/cpu/host_limits.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/cpu/processors.h"

namespace annulus {
namespace {

int AffinityThreads() {
  const Processors usable = UsableProcessors();
  if (!usable.empty()) return static_cast<int>(usable.size());
  return std::max<int>(1, sysconf(_SC_NPROCESSORS_ONLN));
}

// The first line of a file, or nothing where it cannot be read.
std::optional<std::string> FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// cpu.max is "quota period" in microseconds, or "max period".
std::optional<int> CpuQuota(const std::string& line) {
  const std::vector<std::string> fields = absl::StrSplit(line, ' ');
  int64_t quota = 0;
  int64_t period = 0;
  if (fields.size() != 2 || !absl::SimpleAtoi(fields[0], &quota) ||
      !absl::SimpleAtoi(fields[1], &period) || quota < 1 || period < 1) {
    return std::nullopt;
  }
  return static_cast<int>(std::min<int64_t>(quota / period + (quota % period != 0), 1 << 20));
}

// This process' group in the unified hierarchy: the line "0::/path".
std::string ControlGroup(const std::string& root) {
  std::ifstream file(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "0::/")) return line.substr(3);
  }
  return "/";
}

// Every group from the process' own up to the root can limit it.
void ApplyControlGroups(const std::string& root, HostLimits* limits) {
  std::string group = ControlGroup(root);
  for (;;) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    const std::string folder = absl::StrCat(root, "/sys/fs/cgroup", group);
    if (const auto line = FirstLine(folder + "/cpu.max"); line.has_value()) {
      limits->threads = std::min(limits->threads, CpuQuota(*line).value_or(limits->threads));
    }
    uint64_t bytes = 0;
    const auto memory = FirstLine(folder + "/memory.max");
    if (memory.has_value() && absl::SimpleAtoi(*memory, &bytes)) {
      limits->memory_bytes = limits->memory_bytes == 0
                                 ? static_cast<size_t>(bytes)
                                 : std::min<size_t>(limits->memory_bytes, bytes);
    }
    if (group.empty()) return;
    group.resize(group.rfind('/'));
  }
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
  ApplyControlGroups(root, &limits);
  limits.processor = ProcessorName(root);
  return limits;
}

}  // namespace annulus
