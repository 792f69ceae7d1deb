#include "engine/memory/prefix_index.h"

#include <map>
#include <random>
#include <string>

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr int kPage = 4;

// A sequence's pages of two groups, one full and one with a window, on two ranks.
struct Written {
  std::vector<std::map<int32_t, OwnedPage>> groups{2};

  OwnedPage Share(int group, int32_t first) const {
    const OwnedPage& page = groups[group].at(first);
    return {page.rank, page.first_position, page.page.Share()};
  }
};

class PrefixIndexTest : public ::testing::Test {
 protected:
  PrefixIndexTest() : ranks_{PageAllocator(1000), PageAllocator(1000)} {}

  Written Write(size_t tokens) {
    Written written;
    for (int group = 0; group < 2; ++group) {
      for (size_t first = 0; first < tokens; first += kPage) {
        const int32_t rank = static_cast<int32_t>(first / kPage % 2);
        written.groups[group][first] = {rank, static_cast<int32_t>(first),
                                        ranks_[rank].Allocate().value()};
      }
    }
    return written;
  }

  void Insert(const std::vector<int32_t>& tokens, const Written& written,
              const std::string& identity = "model") {
    index_.Insert(identity, tokens,
                  [&](int group, int32_t first) { return written.Share(group, first); });
  }

  int32_t held() const { return ranks_[0].held_count() + ranks_[1].held_count(); }

  PageAllocator ranks_[2];
  PrefixIndex index_{kPage, {0, 6}, 2};
};

std::vector<int32_t> Tokens(int count, int salt = 0) {
  std::vector<int32_t> tokens(count);
  for (int i = 0; i < count; ++i) tokens[i] = i * 7 + salt;
  return tokens;
}

TEST_F(PrefixIndexTest, FindsTheLongestCheckpoint) {
  {
    const Written written = Write(16);
    Insert(Tokens(8), written);
    Insert(Tokens(16), written);
  }
  const auto hit = index_.Find("model", Tokens(19));
  ASSERT_TRUE(hit.has_value());
  EXPECT_EQ(hit->tokens, 16);
  ASSERT_EQ(hit->groups[0].size(), 4u);
  // The row at 16 sees 11..16 of a window of 6: pages 8 and 12.
  ASSERT_EQ(hit->groups[1].size(), 2u);
  EXPECT_EQ(hit->groups[1][0].first_position, 8);
  // 12 tokens: pages are known, but the window's only at 8.
  EXPECT_EQ(index_.Find("model", Tokens(15))->tokens, 8);
  EXPECT_FALSE(index_.Find("model", Tokens(7)).has_value());
}

TEST_F(PrefixIndexTest, OtherTokensOrIdentitiesNeverHit) {
  Insert(Tokens(8), Write(8));
  EXPECT_FALSE(index_.Find("other", Tokens(8)).has_value());
  EXPECT_FALSE(index_.Find("model", Tokens(8, 1)).has_value());
  std::vector<int32_t> changed = Tokens(8);
  changed[7] += 1;
  EXPECT_FALSE(index_.Find("model", changed).has_value());
}

TEST_F(PrefixIndexTest, EvictsTheLeastRecentlyUsedFromItsEnd) {
  Insert(Tokens(8), Write(8));
  Insert(Tokens(8, 1), Write(8));
  ASSERT_TRUE(index_.Find("model", Tokens(8)).has_value());
  const int32_t before = held();
  EXPECT_TRUE(index_.Evict([&] { return held() < before; }));
  EXPECT_FALSE(index_.Find("model", Tokens(8, 1)).has_value());
  EXPECT_TRUE(index_.Find("model", Tokens(8)).has_value());
  EXPECT_FALSE(index_.Evict([] { return false; }));
  EXPECT_EQ(held(), 0);
  EXPECT_EQ(index_.pages(0) + index_.pages(1), 0);
}

// Giving back what a hit or a sequence holds frees nothing and forgets it: that goes last.
TEST_F(PrefixIndexTest, EvictsWhatIsInUseLast) {
  const Written running = Write(8);
  Insert(Tokens(8), running);
  Insert(Tokens(8, 1), Write(8));
  Insert(Tokens(8, 2), Write(8));
  auto hit = index_.Find("model", Tokens(8, 1));
  ASSERT_TRUE(hit.has_value());
  ASSERT_TRUE(index_.Find("model", Tokens(8, 2)).has_value());  // the last to be used
  const std::vector<int32_t> unused = index_.unused_pages();
  EXPECT_EQ(unused[0] + unused[1], 4);  // two of each group
  const int32_t before = held();
  EXPECT_TRUE(index_.Evict([&] { return held() == before - unused[0] - unused[1]; }));
  EXPECT_FALSE(index_.Find("model", Tokens(8, 2)).has_value());
  EXPECT_TRUE(index_.Find("model", Tokens(8)).has_value());
  EXPECT_TRUE(index_.Find("model", Tokens(8, 1)).has_value());
  EXPECT_EQ(index_.unused_pages(), (std::vector<int32_t>{0, 0}));
  EXPECT_FALSE(index_.Evict([] { return false; }));
  EXPECT_FALSE(index_.Find("model", Tokens(8, 1)).has_value());
  EXPECT_EQ(held(), 8);  // of the sequence and of the hit
}

TEST_F(PrefixIndexTest, RandomUseKeepsTheBooks) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    std::vector<PrefixIndex::Hit> hits;
    for (int turn = 0; turn < 300; ++turn) {
      const std::vector<int32_t> tokens = Tokens(kPage * pick(1, 10), pick(0, 3));
      switch (pick(0, 3)) {
        case 0:
          Insert(tokens, Write(tokens.size()));
          break;
        case 1:
          if (auto hit = index_.Find("model", tokens)) hits.push_back(*std::move(hit));
          break;
        case 2:
          if (!hits.empty()) hits.pop_back();
          break;
        default: {
          const int32_t goal = index_.pages(0) + index_.pages(1) - pick(0, 5);
          index_.Evict([&] { return index_.pages(0) + index_.pages(1) <= goal; });
          // Exactly the unused ones can come free, and do.
          const std::vector<int32_t> unused = index_.unused_pages();
          const int32_t least = held() - unused[0] - unused[1];
          if (pick(0, 9) == 0) {
            ASSERT_TRUE(index_.Evict([&] { return held() <= least; }));
            index_.Evict([] { return false; });
            ASSERT_EQ(held(), least);
          }
        }
      }
      ASSERT_LE(index_.pages(0), ranks_[0].held_count());
      ASSERT_LE(index_.pages(1), ranks_[1].held_count());
    }
    hits.clear();
    ASSERT_EQ(index_.pages(0), ranks_[0].held_count());
    ASSERT_EQ(index_.pages(1), ranks_[1].held_count());
    index_.Clear();
    ASSERT_EQ(held(), 0);
  }
}

}  // namespace
}  // namespace annulus
