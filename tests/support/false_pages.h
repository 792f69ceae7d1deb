#ifndef ANNULUS_TESTS_SUPPORT_FALSE_PAGES_H_
#define ANNULUS_TESTS_SUPPORT_FALSE_PAGES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "engine/tiers/disk_folder.h"
#include "engine/tiers/page_entry.h"

namespace annulus::testing {

// Gives a stored page, header and bytes, other bytes with the checksums that belong to those:
// numbers, as pages of other tokens would have.
inline void FalsifyPage(std::span<std::byte> page) {
  const std::span<std::byte> header = page.first(kEntryHeaderBytes);
  const std::span<std::byte> payload = page.subspan(kEntryHeaderBytes);
  EntryHeader entry = *ReadHeader(header);
  const std::span<uint32_t> words(reinterpret_cast<uint32_t*>(payload.data()),
                                  payload.size() / sizeof(uint32_t));
  std::reverse(words.begin(), words.end());
  entry.payload = ChecksumOf(payload);
  WriteHeader(entry, header);
}

// Changes the last byte of a stored page and the checksums that belong to it: one of the last
// layer.
inline void FalsifyLastLayer(std::span<std::byte> page) {
  EntryHeader entry = *ReadHeader(page.first(kEntryHeaderBytes));
  page.back() ^= std::byte{1};
  entry.payload = ChecksumOf(page.subspan(kEntryHeaderBytes));
  WriteHeader(entry, page.first(kEntryHeaderBytes));
}

// Does so with the pages of positions [begin, end) in a folder of --kv-disk. Returns how many there
// were.
inline int FalsifyPages(const std::filesystem::path& folder, int32_t begin, int32_t end,
                        void (*falsify)(std::span<std::byte> page) = FalsifyPage) {
  int changed = 0;
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    const auto name = EntryName::Parse(each.path().filename().string());
    if (!name.has_value() || name->first_position < begin || name->first_position >= end) continue;
    std::fstream file(each.path(), std::ios::in | std::ios::out | std::ios::binary);
    std::vector<std::byte> bytes(each.file_size());
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    falsify(bytes);
    file.seekp(0);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    ++changed;
  }
  return changed;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_FALSE_PAGES_H_
