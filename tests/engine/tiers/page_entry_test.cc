#include "engine/tiers/page_entry.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>

#include "tests/engine/tiers/marks.h"

namespace annulus {
namespace {

using testing::MarksOf;

std::array<std::byte, kEntryHeaderBytes> Written(const EntryHeader& header) {
  std::array<std::byte, kEntryHeaderBytes> block;
  WriteHeader(header, block);
  return block;
}

TEST(PageEntry, HeaderComesBackAsItWasWritten) {
  for (const std::optional<double> coverage : {std::optional<double>(), std::optional(0.25)}) {
    EntryHeader header{MarksOf(3)[2], 12345, ChecksumOf(std::as_bytes(std::span("abc", 3)))};
    header.mark.coverage = coverage;
    header.mark.group = 2;
    const auto read = ReadHeader(Written(header));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SamePage(read->mark, header.mark));
    EXPECT_EQ(read->mark.coverage, coverage);
    EXPECT_EQ(read->payload_bytes, 12345u);
    EXPECT_EQ(read->payload, header.payload);
  }
}

TEST(PageEntry, NoBitOfAHeaderCanChange) {
  auto block = Written({MarksOf(1)[0], 64, {}});
  for (size_t bit = 0; bit < block.size() * 8; ++bit) {
    block[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(ReadHeader(block).ok()) << "bit " << bit;
    block[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_TRUE(ReadHeader(block).ok());
}

TEST(PageEntry, EveryFieldTellsPagesApart) {
  const PageMark mark = MarksOf(3)[2];
  EXPECT_TRUE(SamePage(mark, mark));
  const std::vector<std::function<void(PageMark&)>> changes = {
      [](PageMark& m) { m.identity[0] ^= 1; },   [](PageMark& m) { m.policy[0] ^= 1; },
      [](PageMark& m) { m.tenant[31] ^= 1; },    [](PageMark& m) { m.parent[0] ^= 1; },
      [](PageMark& m) { m.chain[5] ^= 1; },      [](PageMark& m) { m.group = 1; },
      [](PageMark& m) { m.first_position = 4; }, [](PageMark& m) { m.tokens[1] ^= 1; },
      [](PageMark& m) { m.tokens.pop_back(); }};
  for (size_t i = 0; i < changes.size(); ++i) {
    PageMark other = mark;
    changes[i](other);
    EXPECT_FALSE(SamePage(other, mark)) << i;
    EXPECT_FALSE(SamePage(mark, other)) << i;
  }
}

// A file that somebody made up may claim a chain that its tokens do not have.
TEST(PageEntry, AChainMustFollowFromItsTokens) {
  PageMark mark = MarksOf(1)[0];
  mark.tokens[0] ^= 1;
  EXPECT_FALSE(SamePage(mark, mark));
  PageMark stranger = MarksOf(1)[0];
  stranger.tenant = HashOf("other");
  EXPECT_FALSE(SamePage(stranger, stranger)) << "its root is another tenant's";
}

TEST(PageEntry, PartsHaveTheChecksumOfTheWhole) {
  const std::vector<std::byte> bytes(1000, std::byte{3});
  const std::span<const std::byte> all(bytes);
  const std::array<std::span<const std::byte>, 3> parts = {all.first(1), all.subspan(1, 500),
                                                           all.subspan(501)};
  EXPECT_EQ(ChecksumOf(parts), ChecksumOf(all));
}

}  // namespace
}  // namespace annulus
