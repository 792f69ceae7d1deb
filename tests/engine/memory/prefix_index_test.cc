#include "engine/memory/prefix_index.h"

#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr int kPage = 4;

// A sequence's pages of two groups, one full and one with a window, on two ranks. It holds them
// until it ends.
class Written {
 public:
  Written(PageBook& book, PageOwner owner, const TenantId& tenant = {})
      : book_(&book), owner_(owner) {
    book.Open(owner, tenant);
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

  Written Write(size_t tokens, const TenantId& tenant = {}) {
    const PageOwner owner = OwnerOfRequest(next_owner_++);
    Written written(book_, owner, tenant);
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
    const PageOwner owner = OwnerOfRequest(next_owner_++);
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
  uint64_t next_owner_ = 1;
};

std::vector<int32_t> Tokens(int count, int salt = 0) {
  std::vector<int32_t> tokens(count);
  for (int i = 0; i < count; ++i) tokens[i] = i * 7 + salt;
  return tokens;
}

TEST_F(PrefixIndexTest, GivesBackOneTenantsAlone) {
  const TenantId other = TenantId::FromName("other").value();
  Insert(Tokens(16), Write(16));
  Insert(Tokens(16), Write(16, other), "other");
  Insert(Tokens(12, 1), Write(12, other), "other");
  EXPECT_FALSE(index_.Evict([] { return false; }, &other));
  EXPECT_FALSE(index_.Find("other", Tokens(17)).has_value());
  EXPECT_FALSE(index_.Find("other", Tokens(13, 1)).has_value());
  EXPECT_EQ(index_.Find("model", Tokens(17)).value().tokens, 16);
  EXPECT_EQ(book_.pages_of(other).all, 0);
}

// Ranks alternate page by page. What comes before a lost page stays known; what follows it does
// not.
TEST_F(PrefixIndexTest, ForgetsThePagesOfARankAndWhatFollowsThem) {
  Insert(Tokens(16), Write(16));
  Insert(Tokens(8, 1), Write(8));
  index_.ForgetRanks(std::vector<int32_t>{1});
  EXPECT_EQ(book_.unheld_count(1), 0);
  EXPECT_EQ(book_.free_count(1), kPagesPerRank);
  EXPECT_EQ(index_.FindFull("model", Tokens(17)).value().tokens, kPage);
  EXPECT_FALSE(index_.Find("model", Tokens(17)).has_value()) << "its checkpoint is gone";
  EXPECT_TRUE(index_.FindNearest("model", Tokens(17)).evicted);
  index_.ForgetRanks(std::vector<int32_t>{0});
  EXPECT_EQ(held(), 0);
}

// The book says whether a page is kept that must not be; every prefix is found up to its first lost
// page, by the model of a set.
TEST_F(PrefixIndexTest, ForgetsRanksOfRandomTrees) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<int32_t>> texts;
    for (int text = 0; text < 8; ++text) {
      std::vector<int32_t> tokens(kPage * (1 + random() % 6));
      for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 2);
      Insert(tokens, Write(tokens.size()));
      texts.push_back(std::move(tokens));
    }
    const auto rank = static_cast<int32_t>(random() % 2);
    index_.ForgetRanks(std::vector<int32_t>{rank});
    EXPECT_EQ(book_.free_count(rank), kPagesPerRank);
    for (std::vector<int32_t>& text : texts) {
      text.push_back(0);
      const auto found = index_.FindFull("model", text);
      EXPECT_EQ(found.has_value() ? found->tokens : 0, rank == 0 ? 0 : kPage);
    }
    index_.Clear();
    ASSERT_EQ(held(), 0);
  }
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

TEST_F(PrefixIndexTest, FullGroupsNeedNoCheckpoint) {
  const Written written = Write(16);
  Insert(Tokens(16), written);
  EXPECT_FALSE(index_.Find("model", Tokens(14)).has_value());
  const auto hit = index_.FindFull("model", Tokens(14));
  ASSERT_TRUE(hit.has_value());
  EXPECT_EQ(hit->tokens, 12);
  ASSERT_EQ(hit->groups[0].size(), 3u);
  for (const PrefixPage& page : hit->groups[0]) {
    EXPECT_EQ(page.id, written.groups[0].at(page.first_position));
  }
  EXPECT_TRUE(hit->groups[1].empty());
  EXPECT_FALSE(index_.FindFull("model", Tokens(3)).has_value());
  EXPECT_FALSE(index_.FindFull("other", Tokens(14)).has_value());
}

TEST_F(PrefixIndexTest, OtherTokensOrIdentitiesNeverHit) {
  Insert(Tokens(8), Write(8));
  EXPECT_FALSE(index_.Find("other", Tokens(8)).has_value());
  EXPECT_FALSE(index_.Find("model", Tokens(8, 1)).has_value());
  std::vector<int32_t> changed = Tokens(8);
  changed[7] += 1;
  EXPECT_FALSE(index_.Find("model", changed).has_value());
}

TEST_F(PrefixIndexTest, FindsWhereAFirstPageDiffers) {
  const auto differs = [this](std::vector<int32_t> tokens, const std::string& identity = "model") {
    return index_.FirstDifference(identity, tokens);
  };
  const auto with = [](int at, int32_t token) {
    std::vector<int32_t> tokens = Tokens(8);
    tokens[at] = token;
    return tokens;
  };
  EXPECT_EQ(differs(Tokens(8)), std::nullopt);
  Insert(Tokens(8), Write(8));
  EXPECT_EQ(differs(with(3, 1000)), 3);
  EXPECT_EQ(differs(with(0, 1000)), 0);
  EXPECT_EQ(differs(with(5, 1000)), kPage) << "the first page is known";
  EXPECT_EQ(differs(with(3, 1000), "other"), std::nullopt);
  Insert(with(1, 1000), Write(8));
  Insert(with(2, 1000), Write(8));
  EXPECT_EQ(differs(with(3, 1000)), 3) << "the nearest, not the latest";
  std::vector<int32_t> both = with(1, 1000);
  both[2] = 1001;
  EXPECT_EQ(differs(both), 2);
  // What goes is not compared, whether it is the oldest of them or in between.
  ASSERT_TRUE(index_.Find("model", Tokens(8)).has_value());  // used last
  const int64_t all = kept();
  EXPECT_TRUE(index_.Evict([&] { return kept() <= all - 4; }));
  EXPECT_EQ(differs(both), 1);
  EXPECT_EQ(differs(with(3, 1000)), 3);
  EXPECT_FALSE(index_.Evict([] { return false; }));
  EXPECT_EQ(differs(with(3, 1000)), std::nullopt);
  EXPECT_EQ(index_.bytes(), 0);
  Insert(Tokens(8), Write(8));
  EXPECT_EQ(differs(with(3, 1000)), 3);
  index_.Clear();
  EXPECT_EQ(differs(with(3, 1000)), std::nullopt);
}

// However many texts there are, the work has a limit: older ones are not compared.
TEST_F(PrefixIndexTest, ComparesTheLatestFirstPagesAlone) {
  constexpr int kCompared = 256;
  const auto text = [](int32_t number) { return std::vector<int32_t>{5, 6, number, number}; };
  Insert(text(0), Write(kPage));
  for (int32_t number = 1; number < kCompared; ++number) {
    Insert(std::vector<int32_t>{number + 1000, 0, 0, 0}, Write(kPage));
  }
  EXPECT_EQ(index_.FirstDifference("model", std::vector<int32_t>{5, 6, 0, 1}), 3);
  Insert(std::vector<int32_t>{5, 7, 0, 0}, Write(kPage));
  EXPECT_EQ(index_.FirstDifference("model", std::vector<int32_t>{5, 6, 0, 1}), 1);
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

TEST_F(PrefixIndexTest, ADroppedCheckpointLeavesThePrefixAndThePages) {
  PrefixIndex::Mark first;
  PrefixIndex::Mark again;
  {
    const Written written = Write(16);
    Insert(Tokens(8), written);
    Insert(Tokens(16), written, "model", &first);
    Insert(Tokens(16), written, "model", &again);
  }
  EXPECT_TRUE(first.is_new);
  EXPECT_FALSE(again.is_new);
  index_.Pin(first.digest);
  index_.DropCheckpoint(first.digest);
  EXPECT_EQ(index_.Find("model", Tokens(17))->tokens, 16) << "it is pinned";
  index_.Unpin(first.digest);
  const int64_t before = kept();
  index_.DropCheckpoint(first.digest);
  index_.DropCheckpoint(first.digest);
  EXPECT_EQ(index_.Find("model", Tokens(17))->tokens, 8);
  EXPECT_EQ(index_.FindNearest("model", Tokens(17)).whole, 16);
  // Those of the window, one rank's each.
  EXPECT_EQ(before - kept(), 2);
  EXPECT_EQ(held(), kept());
  index_.Clear();
  index_.DropCheckpoint(first.digest);
  EXPECT_EQ(held(), 0);
}

TEST_F(PrefixIndexTest, ACheckpointThatOthersCountOnIsNotDropped) {
  PrefixIndex::Mark mark;
  {
    const Written written = Write(16);
    Insert(Tokens(16), written, "model", &mark);
    Insert(Tokens(16), written, "model");
  }
  index_.DropCheckpoint(mark.digest);
  EXPECT_EQ(index_.Find("model", Tokens(17))->tokens, 16);
}

// Pages that look free must be: a pin keeps the windows at its own end only.
TEST_F(PrefixIndexTest, EvictsTheWindowsOfCheckpointsInsideAPinnedPrefix) {
  PrefixIndex::Mark mark;
  {
    const Written written = Write(16);
    Insert(Tokens(8), written);
    Insert(Tokens(16), written, "model", &mark);
  }
  index_.Pin(mark.digest);
  const int64_t before = kept();
  EXPECT_FALSE(index_.Evict([] { return false; }));
  EXPECT_LT(kept(), before);
  EXPECT_EQ(index_.Find("model", Tokens(17))->tokens, 16);
  EXPECT_FALSE(index_.Find("model", Tokens(9)).has_value());
  index_.Unpin(mark.digest);
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

// Where a text leaves those that are known, whatever has a checkpoint there.
TEST_F(PrefixIndexTest, SaysWhereAndWhyAPrefixEnds) {
  Insert(Tokens(16), Write(16));
  const auto look = [&](const std::vector<int32_t>& tokens, const std::string& identity = "model") {
    PrefixIndex::Nearest found;
    index_.Find(identity, tokens, &found);
    const PrefixIndex::Nearest looked = index_.FindNearest(identity, tokens);
    EXPECT_EQ(std::tie(found.whole, found.common, found.differs, found.evicted),
              std::tie(looked.whole, looked.common, looked.differs, looked.evicted));
    return looked;
  };
  PrefixIndex::Nearest nearest = look(Tokens(20));
  EXPECT_EQ(nearest.whole, 16);
  EXPECT_FALSE(nearest.differs) << "the known text ends there";
  EXPECT_FALSE(look(Tokens(15)).differs) << "this one does";
  EXPECT_EQ(look(Tokens(15)).common, 15);
  std::vector<int32_t> changed = Tokens(20);
  changed[10] += 1;
  nearest = look(changed);
  EXPECT_EQ(nearest.whole, 8);
  EXPECT_EQ(nearest.common, 10);
  EXPECT_TRUE(nearest.differs);
  EXPECT_EQ(look(Tokens(8, 1)).whole, 0);
  EXPECT_FALSE(look(Tokens(8, 1)).differs);
  // Of two that go on from there, the one that has more in common.
  Insert(std::span<const int32_t>(changed).first(16), Write(16));
  changed[11] += 1;
  EXPECT_EQ(look(changed).common, 11);
  EXPECT_FALSE(look(changed).evicted);
  index_.Evict([] { return false; });
  nearest = look(Tokens(20));
  EXPECT_EQ(nearest.whole, 0);
  EXPECT_TRUE(nearest.evicted);
  EXPECT_FALSE(look(Tokens(20), "other").evicted);
  Insert(Tokens(4), Write(4));
  EXPECT_TRUE(look(Tokens(20)).evicted);
  EXPECT_EQ(look(Tokens(20)).whole, 4);
  EXPECT_FALSE(look(Tokens(7)).evicted) << "less than a page is left";
}

TEST_F(PrefixIndexTest, PinnedPrefixesStay) {
  Insert(Tokens(8), Write(8));
  Insert(Tokens(16), Write(16));
  Insert(Tokens(8, 1), Write(8));
  const auto hit = index_.Find("model", Tokens(8));
  ASSERT_TRUE(hit.has_value());
  for (int i = 0; i < 2; ++i) index_.Pin(hit->end);
  EXPECT_FALSE(index_.Evict([] { return false; }));
  EXPECT_EQ(index_.FindNearest("model", Tokens(16)).whole, 8) << "what follows went";
  EXPECT_EQ(index_.FindNearest("model", Tokens(8, 1)).whole, 0);
  index_.Unpin(hit->end);
  EXPECT_FALSE(index_.Evict([] { return false; }));
  EXPECT_EQ(index_.FindNearest("model", Tokens(16)).whole, 8) << "it is pinned once more";
  index_.Unpin(hit->end);
  EXPECT_FALSE(index_.Evict([] { return false; }));
  EXPECT_EQ(kept(), 0);
}

// A document goes with what follows it, and with what leads to it alone; what others begin with
// stays, however much of it is the same text.
TEST_F(PrefixIndexTest, ForgetsWhatIsThereForADocumentAlone) {
  constexpr DocumentTag kFirst = 11;
  constexpr DocumentTag kSecond = 12;
  const auto insert = [&](const std::vector<int32_t>& tokens, const TaggedDocuments& documents) {
    const Written written = Write(tokens.size());
    const auto page_at = [&](int group, int32_t first) { return written.groups[group].at(first); };
    index_.Insert("model", tokens, std::nullopt, page_at, nullptr, documents);
  };
  const auto whole = [&](const std::vector<int32_t>& tokens) {
    return index_.FindNearest("model", tokens).whole;
  };
  const std::vector<int32_t> version = Tokens(24);
  std::vector<int32_t> edited = version;
  edited[13] += 1;
  std::vector<int32_t> question = version;
  for (int i = 0; i < 8; ++i) question.push_back(1000 + i);
  const std::vector<int32_t> system(version.begin(), version.begin() + 4);
  insert(system, {});
  insert(version, {{kFirst, 5}});
  insert(question, {{kFirst, 5}, {kSecond, 100}});  // the second begins behind it
  insert(edited, {{kSecond, 5}});
  EXPECT_EQ(index_.documents().TokensOf(kFirst), 32 - 5);
  EXPECT_EQ(index_.documents().TokensOf(kSecond), 24 - 5);
  index_.Forget(kFirst);
  EXPECT_EQ(whole(question), 12) << "the edited version has these";
  EXPECT_EQ(whole(edited), 24);
  EXPECT_EQ(index_.documents().TokensOf(kFirst), 0);
  index_.Forget(kSecond);
  EXPECT_EQ(whole(edited), 4) << "a prompt without documents has these";
  index_.Forget(kSecond);
  EXPECT_EQ(whole(edited), 4);
  // One that a prompt has behind another goes with that one.
  insert(version, {{kFirst, 5}, {kSecond, 14}});
  index_.Forget(kFirst);
  EXPECT_EQ(whole(version), 4);
  EXPECT_EQ(index_.documents().TokensOf(kSecond), 0);
}

// A prompt whose end went still has the rest.
TEST_F(PrefixIndexTest, WhatIsLeftOfADocumentIsFoundToo) {
  constexpr DocumentTag kTag = 11;
  for (const auto& tokens : {Tokens(16), Tokens(24)}) {
    const Written written = Write(tokens.size());
    const auto page_at = [&](int group, int32_t first) { return written.groups[group].at(first); };
    index_.Insert("model", tokens, std::nullopt, page_at, nullptr, {{kTag, 2}});
  }
  for (const int32_t left : {20, 16, 12, 8, 4}) {
    int turns = 0;
    index_.Evict([&] { return turns++ == 1; });
    EXPECT_EQ(index_.FindNearest("model", Tokens(24)).whole, left);
    EXPECT_EQ(index_.documents().TokensOf(kTag), left - 2);
  }
  index_.Forget(kTag);
  EXPECT_EQ(index_.FindNearest("model", Tokens(24)).whole, 0);
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
