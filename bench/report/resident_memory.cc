#include "bench/report/resident_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace annulus::bench {

void ResidentMemory::Resume() { std::ofstream("/proc/self/clear_refs") << "5"; }

void ResidentMemory::Pause(int64_t held) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, "VmHWM:") || !absl::ConsumeSuffix(&rest, " kB")) continue;
    int64_t kibibytes = 0;
    if (absl::SimpleAtoi(rest, &kibibytes)) peak_ = std::max(peak_, kibibytes * 1024 - held);
  }
}

}  // namespace annulus::bench
