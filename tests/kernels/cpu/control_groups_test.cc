#include "kernels/cpu/host/control_groups.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/host/host_limits.h"
#include "tests/support/machine_files.h"

namespace annulus {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr char kOldUnlimited[] = "9223372036854771712\n";

class ControlGroupsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) { machine_.Write(path, text); }
  // One more line of /proc/self/mountinfo.
  void Mount(const std::string& shown, const std::string& folder, const std::string& type,
             const std::string& options) {
    absl::StrAppend(&mounts_, "32 31 0:29 ", shown, " ", folder, " rw,relatime shared:9 - ", type,
                    " cgroup ", options, "\n");
    Write("proc/self/mountinfo", mounts_);
  }
  uint64_t Memory() const { return ReadControlGroups(machine_.root()).memory_bytes.value_or(0); }
  int Threads() const { return ReadControlGroups(machine_.root()).threads.value_or(0); }

  const testing::MachineFiles machine_;
  std::string mounts_ = "23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n";
};

// Docker on a host of version 1: the host's paths in /proc/self/cgroup, its own group at the mount.
TEST_F(ControlGroupsTest, AContainerOfVersionOneFindsItsGroupAtTheMount) {
  Write("proc/self/cgroup", "4:memory:/docker/0a1b\n1:cpu,cpuacct:/docker/0a1b\n0::/\n");
  Mount("/docker/0a1b", "/sys/fs/cgroup/memory", "cgroup", "rw,memory");
  Mount("/docker/0a1b", "/sys/fs/cgroup/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Memory(), 2 * kGiB);
  EXPECT_EQ(Threads(), 2);
}

TEST_F(ControlGroupsTest, TheLeastOfNestedGroupsOfVersionOneCounts) {
  Write("proc/self/cgroup", "4:memory:/slice/pod/box\n3:cpu:/slice\n");
  Mount("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory");
  Mount("/", "/sys/fs/cgroup/cpu", "cgroup", "rw,cpu");
  const std::string memory = "sys/fs/cgroup/memory/";
  Write(memory + "slice/pod/box/memory.limit_in_bytes", "3221225472\n");
  Write(memory + "slice/pod/memory.limit_in_bytes", "1073741824\n");
  Write(memory + "slice/memory.limit_in_bytes", kOldUnlimited);
  Write(memory + "memory.limit_in_bytes", kOldUnlimited);
  Write("sys/fs/cgroup/cpu/slice/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu/slice/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Memory(), kGiB);
  EXPECT_EQ(Threads(), 0);
}

// What the file system hides, the kernel still tells in memory.stat.
TEST_F(ControlGroupsTest, VersionOneTellsLimitsThatAContainerDoesNotSee) {
  Write("proc/self/cgroup", "4:memory:/\n");
  Mount("/kubepods/pod/box", "/sys/fs/cgroup/memory", "cgroup", "rw,memory");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", kOldUnlimited);
  Write("sys/fs/cgroup/memory/memory.stat",
        "cache 0\nhierarchical_memory_limit 1073741824\nhierarchical_memsw_limit 1\n");
  EXPECT_EQ(Memory(), kGiB);
}

TEST_F(ControlGroupsTest, UnlimitedIsNoLimit) {
  Write("proc/self/cgroup", "4:memory:/\n0::/\n");
  Mount("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory");
  Mount("/", "/sys/fs/cgroup/unified", "cgroup2", "rw");
  for (const char* text : {kOldUnlimited, "9223372036854775807", "-1", "0", "", "much", "max"}) {
    Write("sys/fs/cgroup/memory/memory.limit_in_bytes", text);
    Write("sys/fs/cgroup/memory/memory.stat",
          absl::StrCat("hierarchical_memory_limit ", text, "\n"));
    Write("sys/fs/cgroup/unified/memory.max", text);
    Write("sys/fs/cgroup/unified/memory.high", text);
    EXPECT_EQ(Memory(), 0u) << text;
  }
}

// systemd's hybrid layout: memory in version 1 or in version 2, whichever has the files.
TEST_F(ControlGroupsTest, BothVersionsOfAHybridHostCount) {
  Write("proc/self/cgroup", "4:memory:/box\n1:name=systemd:/box\n0::/other\n");
  Mount("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory");
  Mount("/", "/sys/fs/cgroup/systemd", "cgroup", "rw,name=systemd");
  Mount("/", "/sys/fs/cgroup/unified", "cgroup2", "rw");
  Write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(Memory(), 2 * kGiB);
  Write("sys/fs/cgroup/unified/other/memory.max", "1073741824\n");
  Write("sys/fs/cgroup/unified/other/cpu.max", "400000 100000\n");
  EXPECT_EQ(Memory(), kGiB);
  EXPECT_EQ(Threads(), 4);
}

// Above memory.high a process is slowed down until it hardly moves.
TEST_F(ControlGroupsTest, TheHighMarkOfVersionTwoIsALimitToo) {
  Write("proc/self/cgroup", "0::/slice/box\n");
  Mount("/", "/sys/fs/cgroup", "cgroup2", "rw,nsdelegate");
  Write("sys/fs/cgroup/slice/box/memory.max", "2147483648\n");
  Write("sys/fs/cgroup/slice/box/memory.high", "max\n");
  EXPECT_EQ(Memory(), 2 * kGiB);
  Write("sys/fs/cgroup/slice/memory.high", "1073741824\n");
  EXPECT_EQ(Memory(), kGiB);
}

TEST_F(ControlGroupsTest, GroupsOutsideOfTheNamespaceAreTheMountsRoot) {
  Mount("/", "/sys/fs/cgroup", "cgroup2", "rw");
  Write("sys/fs/cgroup/memory.max", "1073741824\n");
  Write("sys/fs/memory.max", "4096\n");
  for (const char* group : {"/", "/..", "/../../box", "/gone"}) {
    Write("proc/self/cgroup", absl::StrCat("0::", group, "\n"));
    EXPECT_EQ(Memory(), kGiB) << group;
  }
}

// Bind mounts show a part of the hierarchy somewhere else; folders may hold blanks.
TEST_F(ControlGroupsTest, MountsAreFoundWhereverTheyAre) {
  Write("proc/self/cgroup", "0::/a b/box\n");
  Mount("/a\\040b", "/srv/my\\040groups", "cgroup2", "rw");
  Mount("/a\\040", "/srv/others", "cgroup2", "rw");  // begins alike and is another group
  Write("srv/my groups/box/memory.max", "1073741824\n");
  Write("srv/others/b/box/memory.max", "4096\n");
  EXPECT_EQ(Memory(), kGiB);
}

TEST_F(ControlGroupsTest, LinesThatMakeNoSenseAreSkipped) {
  Write("proc/self/cgroup", "\n:\n::\n4:memory\n4:memory:\n0::nowhere\n");
  for (const char* line : {"", "-", "1 2 3 4 5 6 -", "1 2 3 / /x rw - cgroup2",
                           "1 2 3 - cgroup x y", "1 2 3 /\\ /\\9 rw - cgroup c memory,,"}) {
    Write("proc/self/mountinfo", absl::StrCat(line, "\n", line));
    EXPECT_EQ(Memory(), 0u) << line;
    EXPECT_EQ(Threads(), 0) << line;
  }
}

// A real group of version 1 below this process' own, with one process in it.
class RealGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream groups("/proc/self/cgroup");
    std::string own;
    for (std::string line; std::getline(groups, line);) {
      const size_t at = line.find(":memory:");
      if (at != std::string::npos) own = line.substr(at + 8);
    }
    folder_ = absl::StrCat("/sys/fs/cgroup/memory", own, "/annulus-test-", getpid());
    std::error_code error;
    if (own.empty() || !std::filesystem::create_directory(folder_, error)) {
      folder_.clear();
      GTEST_SKIP() << "a group of cgroup version 1 for memory cannot be made here";
    }
  }
  void TearDown() override {
    if (!folder_.empty()) rmdir(folder_.c_str());
  }
  bool Set(const std::string& name, const std::string& value) const {
    std::ofstream file(folder_ + "/" + name);
    file << value << std::flush;
    return file.good();
  }
  // What a process of the group takes for the machine's memory.
  uint64_t MemorySeenInside() const {
    int ends[2];
    if (pipe(ends) != 0) return 0;
    const pid_t child = fork();
    if (child == 0) {
      uint64_t bytes = 0;
      if (Set("cgroup.procs", absl::StrCat(getpid()))) bytes = ReadHostLimits().memory_bytes;
      _exit(write(ends[1], &bytes, sizeof(bytes)) == sizeof(bytes) ? 0 : 1);
    }
    close(ends[1]);
    uint64_t bytes = 0;
    if (read(ends[0], &bytes, sizeof(bytes)) != sizeof(bytes)) bytes = 0;
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return bytes;
  }

  std::string folder_;
};

TEST_F(RealGroupTest, ALimitOfVersionOneIsSeenInside) {
  const uint64_t outside = ReadHostLimits().memory_bytes;
  EXPECT_EQ(MemorySeenInside(), outside);
  const uint64_t limit = std::min(outside / 2, 2 * kGiB) / 4096 * 4096;
  ASSERT_TRUE(Set("memory.limit_in_bytes", absl::StrCat(limit)));
  EXPECT_EQ(MemorySeenInside(), limit);
}

}  // namespace
}  // namespace annulus
