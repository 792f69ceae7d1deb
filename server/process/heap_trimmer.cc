#include "server/process/heap_trimmer.h"

#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

namespace annulus::server {
namespace {

constexpr std::chrono::seconds kInterval{5};
constexpr size_t kWorthwhileGrowth = size_t{4} << 20;
// What made the memory grow may still have been in use then.
constexpr int kLooksAfterGrowth = 6;

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void HeapTrimmer::Tick(SteadyTime now) {
  if (now < next_look_) return;
  next_look_ = now + kInterval;
  if (ResidentBytes() >= resident_ + kWorthwhileGrowth) looks_left_ = kLooksAfterGrowth;
  if (looks_left_ == 0) return;
  --looks_left_;
  malloc_trim(0);
  resident_ = ResidentBytes();
}

}  // namespace annulus::server
