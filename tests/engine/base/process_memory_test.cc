#include "engine/base/process_memory.h"

#include <cstring>
#include <memory>

#include "gtest/gtest.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

TEST(ProcessMemory, ReadsTheSystemsFile) {
  const testing::TempDirectory folder;
  const std::string file = (folder.path() / "status").string();
  folder.Write("status",
               "Name:\tVmRSS: 7 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t9\n");
  EXPECT_EQ(ReadProcessMemory(file).resident, 1 << 20);
  EXPECT_EQ(ReadProcessMemory(file).resident_most, 2 << 20);
  folder.Write("status", "VmHWM:\t 2048 kB\nVmRSS:\t 1024 kB\nHugetlbPages:\t 4096 kB\n");
  EXPECT_EQ(ReadProcessMemory(file).resident, 5 << 20);
  EXPECT_EQ(ReadProcessMemory(file).resident_most, 6 << 20);
  EXPECT_EQ(ReadProcessMemory("/nonexistent").resident, 0);
}

TEST(ProcessMemory, GrowsWithWhatIsTouched) {
  constexpr int64_t kBytes = 64 << 20;
  const ProcessMemory before = ReadProcessMemory();
  ASSERT_GT(before.resident, 0);
  const auto block = std::make_unique<char[]>(kBytes);
  std::memset(block.get(), 1, kBytes);
  const ProcessMemory after = ReadProcessMemory();
  EXPECT_GE(after.resident, before.resident + kBytes / 2);
  EXPECT_GE(after.resident_most, after.resident);
}

}  // namespace
}  // namespace annulus
