#ifndef ANNULUS_TESTS_ENGINE_TIERS_MARKS_H_
#define ANNULUS_TESTS_ENGINE_TIERS_MARKS_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/tiers/page_entry.h"

namespace annulus::testing {

inline constexpr int kTokens = 4;

// The marks of a text of so many pages.
inline std::vector<PageMark> MarksOf(int pages, const std::string& tenant = "default",
                                     int32_t salt = 0, const std::string& identity = "model") {
  std::vector<PageMark> marks;
  for (int page = 0; page < pages; ++page) {
    PageMark mark;
    mark.identity = HashOf(identity);
    mark.policy = HashOf("dense");
    mark.tenant = HashOf(tenant);
    mark.parent = page == 0 ? RootOf(mark) : marks.back().chain;
    mark.first_position = page * kTokens;
    for (int i = 0; i < kTokens; ++i) mark.tokens.push_back(salt + page * kTokens + i);
    mark.chain = ChainOf(mark.parent, mark.tokens);
    marks.push_back(std::move(mark));
  }
  return marks;
}

// Bytes that differ from page to page.
inline std::vector<std::byte> PayloadOf(const PageMark& mark, size_t bytes) {
  std::vector<std::byte> payload(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    payload[i] = static_cast<std::byte>(mark.chain[i % 32] + 7 * (i / 32) + mark.group);
  }
  return payload;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_TIERS_MARKS_H_
