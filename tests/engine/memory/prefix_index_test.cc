#include "engine/memory/prefix_index.h"

#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr int kPage = 4;

// A sequence's pages of two groups, one full and one with a window, on two ranks. It holds them
// until it ends.
class Written {
 public:
  Written(PageBook& book, PageOwner owner) : book_(&book), owner_(owner) {
    book.Open(owner, TenantId());
  }
  Written(Written&& other) noexcept
      : groups(std::move(other.groups)),
        book_(std::exchange(other.book_, nullptr)),
        owner_(other.owner_) {}
  ~Written() {
    if (book_ != nullptr) book_->Release(owner_);
  }

  std::vector<std::map<int32_t, PageId>> groups{2};

 private:
  PageBook* book_;
  PageOwner owner_;
};

class PrefixIndexTest : public ::testing::Test {
 protected:
  static constexpr int32_t kPagesPerRank = 1000;

  Written Write(size_t tokens) {
    const PageOwner owner = next_owner_++;
    Written written(book_, owner);
    for (int group = 0; group < 2; ++group) {
      for (size_t first = 0; first < tokens; first += kPage) {
        const auto rank = static_cast<int32_t>(first / kPage % 2);
        book_.Reserve(owner, rank, 1);
        const PageId id{rank, book_.reserve(owner, rank).back()};
        book_.BeginWrite(owner, id, group);
        book_.Complete(id);
        written.groups[group][static_cast<int32_t>(first)] = id;
      }
    }
    return written;
  }

  void Insert(std::span<const int32_t> tokens, const Written& written,
              const std::string& identity = "model", PrefixIndex::Mark* mark = nullptr) {
    const auto page_at = [&](int group, int32_t first) { return written.groups[group].at(first); };
    index_.Insert(identity, tokens, std::nullopt, page_at, mark);
  }

  // As a request does that reuses what it found.
  Written Hold(const PrefixIndex::Hit& hit) {
    const PageOwner owner = next_owner_++;
    Written holder(book_, owner);
    for (const auto& group : hit.groups) {
      for (const PrefixPage& page : group) book_.Hold(owner, page.id);
    }
    return holder;
  }

  int64_t held() const {
    return 2 * int64_t{kPagesPerRank} - book_.free_count(0) - book_.free_count(1);
  }
  int64_t kept() const { return book_.counts(0).cached + book_.counts(1).cached; }
  int64_t unheld() const { return book_.unheld_count(0) + book_.unheld_count(1); }

  PageBook book_{{kPagesPerRank, kPagesPerRank}, {0, 6}};
  PrefixIndex index_{kPage, {0, 6}, book_};
  PageOwner next_owner_ = 1;
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

// What names a page's bytes: every token up to its end, and the identity.
TEST_F(PrefixIndexTest, PagesCarryTheHashOfTheirContent) {
  const Written written = Write(8);
  Insert(Tokens(8), written);
  const Written other = Write(8);
  Insert(Tokens(8), other, "other");
  std::set<ContentHash> hashes;
  for (const Written* pages : {&written, &other}) {
    for (const int32_t first : {0, 4}) {
      const PageBook::Page full = book_.page(pages->groups[0].at(first));
      const PageBook::Page window = book_.page(pages->groups[1].at(first));
      EXPECT_EQ(full.hash, window.hash);
      EXPECT_NE(full.group, window.group);
      hashes.insert(full.hash);
    }
  }
  EXPECT_EQ(hashes.size(), 4u);
}

// As without the mark, whatever has become of what was inserted before.
TEST_F(PrefixIndexTest, AMarkGoesOnWhereTheTextEnded) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 40 * kPage; ++i) tokens.push_back(i * i % 251);
  const std::span<const int32_t> text(tokens);
  const Written written = Write(tokens.size());
  PrefixIndex::Mark mark;
  for (const int pages : {1, 7, 8, 20, 20, 31, 40}) {
    if (pages == 20) index_.Clear();
    if (pages == 31) {  // its end has gone
      int removed = 0;
      index_.Evict([&] { return removed++ == 5; });
    }
    Insert(text.first(pages * kPage), written, "model", &mark);
    EXPECT_EQ(mark.tokens, pages * kPage);
    const auto hit = index_.Find("model", text);
    ASSERT_TRUE(hit.has_value());
    EXPECT_EQ(hit->tokens, pages * kPage);
    for (const PrefixPage& page : hit->groups[0]) {
      EXPECT_EQ(page.id, written.groups[0].at(page.first_position));
    }
  }
  // It is the text's, not a prefix of it: a shorter one is looked up from its beginning.
  Insert(text.first(3 * kPage), written, "model", &mark);
  EXPECT_EQ(mark.tokens, 3 * kPage);
}

TEST_F(PrefixIndexTest, EvictsTheLeastRecentlyUsedFromItsEnd) {
  Insert(Tokens(8), Write(8));
  Insert(Tokens(8, 1), Write(8));
  ASSERT_TRUE(index_.Find("model", Tokens(8)).has_value());
  const int64_t before = held();
  EXPECT_TRUE(index_.Evict([&] { return held() < before; }));
  EXPECT_FALSE(index_.Find("model", Tokens(8, 1)).has_value());
  EXPECT_TRUE(index_.Find("model", Tokens(8)).has_value());
  EXPECT_FALSE(index_.Evict([] { return false; }));
  EXPECT_EQ(held(), 0);
  EXPECT_EQ(kept(), 0);
}

// Giving back what a hit or a sequence holds frees nothing and forgets it: that goes last.
TEST_F(PrefixIndexTest, EvictsWhatIsInUseLast) {
  const Written running = Write(8);
  Insert(Tokens(8), running);
  Insert(Tokens(8, 1), Write(8));
  Insert(Tokens(8, 2), Write(8));
  const auto hit = index_.Find("model", Tokens(8, 1));
  ASSERT_TRUE(hit.has_value());
  const Written holder = Hold(*hit);
  ASSERT_TRUE(index_.Find("model", Tokens(8, 2)).has_value());  // the last to be used
  EXPECT_EQ(unheld(), 4);                                       // two of each group
  const int64_t before = held();
  EXPECT_TRUE(index_.Evict([&] { return held() == before - 4; }));
  EXPECT_FALSE(index_.Find("model", Tokens(8, 2)).has_value());
  EXPECT_TRUE(index_.Find("model", Tokens(8)).has_value());
  EXPECT_TRUE(index_.Find("model", Tokens(8, 1)).has_value());
  EXPECT_EQ(unheld(), 0);
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
    std::vector<Written> holders;
    for (int turn = 0; turn < 300; ++turn) {
      const std::vector<int32_t> tokens = Tokens(kPage * pick(1, 10), pick(0, 3));
      switch (pick(0, 3)) {
        case 0:
          Insert(tokens, Write(tokens.size()));
          break;
        case 1:
          if (const auto hit = index_.Find("model", tokens)) holders.push_back(Hold(*hit));
          break;
        case 2:
          if (!holders.empty()) holders.pop_back();
          break;
        default: {
          const int64_t goal = kept() - pick(0, 5);
          index_.Evict([&] { return kept() <= goal; });
          // Exactly those that nobody holds can come free, and do.
          const int64_t least = held() - unheld();
          if (pick(0, 9) == 0) {
            ASSERT_TRUE(index_.Evict([&] { return held() <= least; }));
            index_.Evict([] { return false; });
            ASSERT_EQ(held(), least);
          }
        }
      }
      ASSERT_LE(kept(), held());
    }
    holders.clear();
    ASSERT_EQ(kept(), held());
    index_.Clear();
    ASSERT_EQ(held(), 0);
  }
}

}  // namespace
}  // namespace annulus
