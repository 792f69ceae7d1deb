#include "kernels/cpu/host/host_limits.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/support/machine_files.h"

namespace annulus {
namespace {

class HostLimitsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) { machine_.Write(path, text); }
  HostLimits Read() const { return ReadHostLimits(machine_.root()); }

  const testing::MachineFiles machine_;
  const HostLimits bare_ = Read();  // this machine's own limits
};

TEST_F(HostLimitsTest, WithoutControlGroupsTheHardwareDecides) {
  EXPECT_GE(bare_.threads, 1);
  EXPECT_GT(bare_.memory_bytes, 0u);
  EXPECT_FALSE(bare_.processor.empty());
}

TEST_F(HostLimitsTest, TheSmallestLimitOnTheWayToTheRootWins) {
  Write("proc/self/cgroup", "12:cpu:/elsewhere\n0::/box/inner\n");
  Write("sys/fs/cgroup/box/inner/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/box/inner/memory.max", "max\n");
  Write("sys/fs/cgroup/box/cpu.max", "100000 100000\n");
  Write("sys/fs/cgroup/box/memory.max", "1048576\n");
  Write("sys/fs/cgroup/memory.max", "2097152\n");
  const HostLimits limits = Read();
  EXPECT_EQ(limits.threads, 1);
  EXPECT_EQ(limits.memory_bytes, 1048576u);
}

TEST_F(HostLimitsTest, AContainerSeesItsOwnGroupAsTheRoot) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  Write("sys/fs/cgroup/memory.max", "4096\n");
  const HostLimits limits = Read();
  EXPECT_EQ(limits.threads, 1);  // half a CPU still needs a thread
  EXPECT_EQ(limits.memory_bytes, 4096u);
}

TEST_F(HostLimitsTest, AQuotaAboveTheHardwareChangesNothing) {
  Write("sys/fs/cgroup/cpu.max", "1000000000 1000\n");
  Write("sys/fs/cgroup/memory.max", "9000000000000000000\n");
  const HostLimits limits = Read();
  EXPECT_EQ(limits.threads, bare_.threads);
  EXPECT_EQ(limits.memory_bytes, bare_.memory_bytes);
}

TEST_F(HostLimitsTest, FilesThatMakeNoSenseAreNoLimit) {
  for (const char* text : {"", "max", "0 100000", "-1 5", "1 0", "a b", "1 2 3"}) {
    Write("sys/fs/cgroup/cpu.max", text);
    Write("sys/fs/cgroup/memory.max", "many\n");
    EXPECT_EQ(Read().threads, bare_.threads) << text;
    EXPECT_EQ(Read().memory_bytes, bare_.memory_bytes) << text;
  }
}

TEST_F(HostLimitsTest, ProcessorNameIsTheVendors) {
  Write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Imaginary CPU 9000 @ 1 GHz\n");
  EXPECT_EQ(Read().processor, "Imaginary CPU 9000 @ 1 GHz");
}

}  // namespace
}  // namespace annulus
