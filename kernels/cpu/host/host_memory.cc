#include "kernels/cpu/host/host_memory.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

constexpr int kProtection = PROT_READ | PROT_WRITE;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Moves nothing: only says where pages are to come from.
void Apply(const NodeWish& wish, void* data, size_t bytes) {
  if (wish.kind == NodeWish::Kind::kNone || wish.nodes.empty()) return;
  constexpr int kWordBits = 8 * sizeof(unsigned long);
  const int most = *std::max_element(wish.nodes.begin(), wish.nodes.end());
  std::vector<unsigned long> mask(most / kWordBits + 1);
  for (const int node : wish.nodes) mask[node / kWordBits] |= 1UL << (node % kWordBits);
  const int mode = wish.kind == NodeWish::Kind::kPreferred ? MPOL_PREFERRED : MPOL_INTERLEAVE;
  // The kernel reads one bit less than it is told. A refusal (containers often forbid the call)
  // leaves first touch to decide: a rank's own threads write its pages.
  syscall(SYS_mbind, data, bytes, mode, mask.data(), mask.size() * kWordBits + 1, 0);
}

absl::Status Refused(size_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot allocate ", bytes, " bytes: the system refused the mapping"));
}

absl::StatusOr<DeviceBuffer> Map(size_t bytes, size_t mapped, int flags, const NodeWish& wish) {
  void* const data = mmap(nullptr, mapped, kProtection, kPrivate | flags, -1, 0);
  if (data == MAP_FAILED) return Refused(bytes);
  Apply(wish, data, mapped);
  return DeviceBuffer(static_cast<std::byte*>(data), bytes,
                      [mapped](std::byte* block) { munmap(block, mapped); });
}

// The system uses a huge page only where all of it lies inside the mapping, so the block begins
// with one. What is left at its end stays in small pages: a block takes no more memory than it has
// bytes.
absl::StatusOr<DeviceBuffer> MapTransparent(size_t bytes, size_t unit, const NodeWish& wish) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  const size_t size = RoundUp(bytes, page);
  void* const start = mmap(nullptr, size + unit, kProtection, kPrivate, -1, 0);
  if (start == MAP_FAILED) return Refused(bytes);
  auto* const first = static_cast<std::byte*>(start);
  const auto address = reinterpret_cast<uintptr_t>(first);
  const size_t before = RoundUp(address, unit) - address;
  std::byte* const data = first + before;
  if (before > 0) munmap(first, before);
  munmap(data + size, unit - before);
  madvise(data, size, MADV_HUGEPAGE);
  Apply(wish, data, size);
  return DeviceBuffer(data, bytes, [size](std::byte* block) { munmap(block, size); });
}

absl::StatusOr<DeviceBuffer> MapExplicit(size_t bytes, size_t unit, const NodeWish& wish) {
  auto buffer = Map(bytes, RoundUp(bytes, unit), MAP_HUGETLB, wish);
  if (buffer.ok()) return buffer;
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot allocate ", bytes, " bytes in huge pages of ", unit, ": ",
      ReadHugePageSupport().explicit_free,
      " bytes of them are free; reserve more (sysctl vm.nr_hugepages), ask for less memory, or use "
      "--huge-pages transparent"));
}

// The value in bytes of a line "Name:   12 kB" or, without a unit, "Name:   12".
size_t FieldOf(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, name + ":")) continue;
    std::istringstream fields(line.substr(name.size() + 1));
    size_t value = 0;
    std::string unit;
    fields >> value >> unit;
    return unit == "kB" ? value << 10 : value;
  }
  return 0;
}

}  // namespace

HugePageSupport ReadHugePageSupport(const std::string& root) {
  HugePageSupport support;
  const std::string folder = root + "/sys/kernel/mm/transparent_hugepage/";
  std::string enabled;
  std::getline(std::ifstream(folder + "enabled") >> std::ws, enabled);
  if (!enabled.empty() && !absl::StrContains(enabled, "[never]")) {
    std::ifstream(folder + "hpage_pmd_size") >> support.transparent_bytes;
  }
  const std::string meminfo = root + "/proc/meminfo";
  if (FieldOf(meminfo, "HugePages_Total") > 0) {
    support.explicit_bytes = FieldOf(meminfo, "Hugepagesize");
    support.explicit_free = FieldOf(meminfo, "HugePages_Free") * support.explicit_bytes;
  }
  return support;
}

absl::StatusOr<HugePages> ChooseHugePages(HugePages wanted, const HugePageSupport& support) {
  if (wanted == HugePages::kAuto) {
    return support.transparent_bytes > 0 ? HugePages::kTransparent : HugePages::kOff;
  }
  if (wanted == HugePages::kTransparent && support.transparent_bytes == 0) {
    return absl::FailedPreconditionError(
        "huge-pages: transparent was asked for and this machine has them turned off; write madvise "
        "to /sys/kernel/mm/transparent_hugepage/enabled, or use --huge-pages off");
  }
  if (wanted == HugePages::kExplicit && support.explicit_bytes == 0) {
    return absl::FailedPreconditionError(
        "huge-pages: explicit was asked for and this machine has reserved none; reserve some "
        "(sysctl vm.nr_hugepages=N), or use --huge-pages transparent or off");
  }
  return wanted;
}

absl::StatusOr<DeviceBuffer> MapHostMemory(size_t bytes, HugePages huge_pages,
                                           const HugePageSupport& support, const NodeWish& wish) {
  if (huge_pages == HugePages::kTransparent && bytes >= support.transparent_bytes) {
    return MapTransparent(bytes, support.transparent_bytes, wish);
  }
  // Rounding up must not cost much memory.
  if (huge_pages == HugePages::kExplicit &&
      RoundUp(bytes, support.explicit_bytes) - bytes <= bytes / 8) {
    return MapExplicit(bytes, support.explicit_bytes, wish);
  }
  return Map(bytes, bytes, 0, wish);
}

}  // namespace annulus
