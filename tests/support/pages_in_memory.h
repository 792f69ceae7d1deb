#ifndef ANNULUS_TESTS_SUPPORT_PAGES_IN_MEMORY_H_
#define ANNULUS_TESTS_SUPPORT_PAGES_IN_MEMORY_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/tiers/page_entry.h"

namespace annulus::testing {

// Changes the pages of positions [begin, end) that a HostStore of this process has, header and
// bytes, which nothing else gives away: they are looked for in all memory that the process mapped
// for itself, through the system, so that no sanitizer minds. Returns how many there were.
inline int ChangePagesInMemory(int32_t begin, int32_t end,
                               const std::function<void(std::span<std::byte> page)>& change) {
  constexpr uint64_t kLargest = uint64_t{1} << 28;  // of a mapping that is looked through
  const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  EXPECT_GE(memory, 0) << "this test changes memory through /proc/self/mem";
  if (memory < 0) return 0;
  int changed = 0;
  std::ifstream maps("/proc/self/maps");
  std::vector<std::byte> header(kEntryHeaderBytes);
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0;
    unsigned long to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx rw-p", &from, &to) != 2 || to - from > kLargest)
      continue;
    if (line.find("rw-p") == std::string::npos || line.find('[') != std::string::npos) continue;
    for (unsigned long at = from; at + header.size() <= to; at += header.size()) {
      const auto place = static_cast<off_t>(at);
      if (pread(memory, header.data(), header.size(), place) != std::ssize(header)) break;
      const absl::StatusOr<EntryHeader> entry = ReadHeader(header);
      if (!entry.ok() || entry->mark.first_position < begin || entry->mark.first_position >= end) {
        continue;
      }
      std::vector<std::byte> page(kEntryHeaderBytes + entry->payload_bytes);
      EXPECT_EQ(pread(memory, page.data(), page.size(), place), std::ssize(page));
      change(page);
      EXPECT_EQ(pwrite(memory, page.data(), page.size(), place), std::ssize(page));
      ++changed;
    }
  }
  close(memory);
  return changed;
}

// Changes one bit of such pages, counted from the header's first.
inline int FlipPagesInMemory(int32_t begin, int32_t end, size_t bit) {
  return ChangePagesInMemory(begin, end, [bit](std::span<std::byte> page) {
    page[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  });
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_PAGES_IN_MEMORY_H_
