#include "kernels/cpu/host/host_memory.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/machine_files.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;
using testing::MachineFiles;

constexpr size_t kHuge = size_t{2} << 20;

// Whether the mapping that holds `address` may use transparent huge pages: flag "hg" of the kernel.
bool MayBeHuge(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream file("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream range(line);
    uintptr_t first = 0;
    uintptr_t last = 0;
    char dash = 0;
    if (range >> std::hex >> first >> dash >> last && dash == '-') {
      inside = first <= wanted && wanted < last;
    }
    if (inside && absl::StartsWith(line, "VmFlags:")) return absl::StrContains(line, " hg");
  }
  return false;
}

TEST(HostMemory, ReadsWhatTheMachineOffers) {
  MachineFiles machine;
  EXPECT_EQ(ReadHugePageSupport(machine.root()).transparent_bytes, 0u);
  EXPECT_EQ(ReadHugePageSupport(machine.root()).explicit_bytes, 0u);
  machine.Write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  machine.Write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
  machine.Write("proc/meminfo",
                "MemTotal: 99 kB\nHugePages_Total:       8\nHugePages_Free:        5\n"
                "Hugepagesize:       2048 kB\n");
  const HugePageSupport support = ReadHugePageSupport(machine.root());
  EXPECT_EQ(support.transparent_bytes, kHuge);
  EXPECT_EQ(support.explicit_bytes, kHuge);
  EXPECT_EQ(support.explicit_free, 5 * kHuge);
  machine.Write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_EQ(ReadHugePageSupport(machine.root()).transparent_bytes, 0u);
}

TEST(HostMemory, WhatTheMachineHasNotIsRefusedWithAdvice) {
  const MachineFiles machine;
  for (const auto& [kind, advice] :
       {std::pair{HugePages::kTransparent, "transparent_hugepage/enabled"},
        std::pair{HugePages::kExplicit, "vm.nr_hugepages"}}) {
    const absl::Status status =
        CreateCpuBackend({.huge_pages = kind, .root = machine.root()}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(advice));
  }
  EXPECT_TRUE(CreateCpuBackend({.root = machine.root()}).ok());
}

TEST(HostMemory, AutoTakesTransparentPagesWhereThereAreSome) {
  EXPECT_EQ(ChooseHugePages(HugePages::kAuto, {.transparent_bytes = kHuge}).value(),
            HugePages::kTransparent);
  EXPECT_EQ(ChooseHugePages(HugePages::kAuto, {.explicit_bytes = kHuge}).value(), HugePages::kOff);
  EXPECT_EQ(ChooseHugePages(HugePages::kOff, {.transparent_bytes = kHuge}).value(),
            HugePages::kOff);
}

TEST(HostMemory, TransparentBlocksBeginWithAHugePage) {
  const HugePageSupport support{.transparent_bytes = kHuge};
  for (const size_t bytes : {kHuge - 1, kHuge, kHuge + 1, 3 * kHuge + 12345}) {
    SCOPED_TRACE(bytes);
    auto buffer = MapHostMemory(bytes, HugePages::kTransparent, support, {});
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    std::memset(buffer->data(), 1, bytes);
    if (bytes < kHuge) continue;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kHuge, 0u);
    if (ReadHugePageSupport().transparent_bytes == 0) continue;
    EXPECT_TRUE(MayBeHuge(buffer->data()));
  }
  auto plain = MapHostMemory(3 * kHuge, HugePages::kOff, support, {});
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(MayBeHuge(plain->data()));
}

TEST(HostMemory, AnEmptyPoolOfExplicitPagesIsTold) {
  if (ReadHugePageSupport().explicit_bytes != 0) GTEST_SKIP() << "this machine has reserved some";
  const HugePageSupport support{.explicit_bytes = kHuge};
  const absl::Status status = MapHostMemory(8 * kHuge, HugePages::kExplicit, support, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(8 * kHuge)));
  EXPECT_THAT(std::string(status.message()), HasSubstr("vm.nr_hugepages"));
  // Rounding up a little more than one page would cost nearly another.
  EXPECT_TRUE(MapHostMemory(kHuge + 1, HugePages::kExplicit, support, {}).ok());
}

TEST(HostMemory, ANodeThatIsNotThereIsOnlyAWish) {
  for (const NodeWish& wish :
       {NodeWish{NodeWish::Kind::kPreferred, {0}}, NodeWish{NodeWish::Kind::kPreferred, {1000}},
        NodeWish{NodeWish::Kind::kInterleaved, {0, 63, 64}}}) {
    auto buffer = MapHostMemory(kHuge, HugePages::kOff, {}, wish);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    std::memset(buffer->data(), 1, kHuge);
  }
}

}  // namespace
}  // namespace annulus
