#include "server/process/memory_reserve.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <vector>

#include "server/work/call_memory.h"

namespace annulus::server {
namespace {

void Require(bool holds, int line) {
  if (!holds) std::_Exit(line % 256);
}

bool CanHave(size_t bytes) {
  try {
    const std::vector<char> block(bytes);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// In a process of its own that may have 64 MiB more than now.
[[noreturn]] void RunOutOfMemory() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t limit = pages * 4096 + (rlim_t{64} << 20);
  const rlimit bound{limit, limit};
  Require(setrlimit(RLIMIT_AS, &bound) == 0, __LINE__);
  MemoryReserve reserve;

  // A large allocation fails alone.
  Require(!CanHave(size_t{256} << 20), __LINE__);
  Require(!MemoryReserve::Gone(), __LINE__);

  // Small ones go on for a while from the reserve, and calls are refused meanwhile.
  std::vector<std::unique_ptr<char[]>> blocks;
  blocks.reserve(100'000);
  while (!MemoryReserve::Gone()) blocks.push_back(std::make_unique<char[]>(4096));
  for (int i = 0; i < 1000; ++i) blocks.push_back(std::make_unique<char[]>(4096));
  CallMemory memory(std::make_shared<MemoryBudget>(size_t{1} << 20));
  Require(absl::IsResourceExhausted(memory.Hold(CallMemory::kKept, 1000)), __LINE__);
  Require(memory.Hold(CallMemory::kKept, 0).ok(), __LINE__);

  // It is set aside again once there is room.
  blocks.clear();
  Require(reserve.Restore() && !MemoryReserve::Gone(), __LINE__);
  Require(memory.Hold(CallMemory::kKept, 1000).ok(), __LINE__);
  std::_Exit(0);
}

TEST(MemoryReserve, KeepsSmallAllocationsFromFailing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(RunOutOfMemory(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace annulus::server
