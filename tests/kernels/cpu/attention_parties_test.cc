#include "kernels/cpu/simd/attention_parties.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus::cpu {
namespace {

using ::testing::ElementsAre;

constexpr int kPage = 64;

// Sequences of one row each, all at their last key.
class AttentionPartiesTest : public ::testing::Test {
 protected:
  // A sequence that shares its first pages with every other of the same `text`.
  void Add(int text, int64_t shared, int64_t pages, int rows = 1) {
    std::vector<KvPageView> views;
    for (int64_t page = 0; page < pages; ++page) {
      const int64_t of = page < shared ? text : 100 + std::ssize(pages_);
      views.push_back(
          {bytes_.data() + of * 1000 + page, static_cast<int32_t>(page * kPage), kPage});
    }
    pages_.push_back(views);
    std::vector<int32_t>& positions = positions_.emplace_back();
    for (int row = rows; row > 0; --row) {
      positions.push_back(static_cast<int32_t>(pages * kPage - row));
    }
  }

  // Members and shared pages of each party of one head.
  std::vector<std::pair<int, int64_t>> PartiesOf(int kv_heads, int group, int threads) {
    std::vector<AttentionItem> items(pages_.size());
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].pages = pages_[i];
      items[i].positions = positions_[i];
    }
    AttentionParams params;
    params.shape.kv_heads = kv_heads;
    params.heads = kv_heads * group;
    params.items = items;
    const AttentionUnits units(params, 128);
    const AttentionParties parties(units, group, 32, threads);
    EXPECT_LE(parties.most_positions() * group, AttentionParties::kMostRows)
        << threads << " threads";
    std::vector<bool> seen(units.size(), false);
    std::vector<std::pair<int, int64_t>> found;
    for (const Party& party : parties.all()) {
      for (const int32_t member : parties.members(party)) {
        EXPECT_FALSE(seen[member]) << member << " is in two parties";
        seen[member] = true;
        EXPECT_EQ(units[member].kv_head, units[parties.members(party)[0]].kv_head);
      }
      if (units[parties.members(party)[0]].kv_head == 0) {
        found.emplace_back(party.count, party.shared_pages);
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0);
    return found;
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(200'000);
  std::vector<std::vector<KvPageView>> pages_;
  std::vector<std::vector<int32_t>> positions_;
};

TEST_F(AttentionPartiesTest, QuestionsAboutOneTextAreTogether) {
  for (int question = 0; question < 8; ++question) Add(1, 20, 21 + question);
  EXPECT_THAT(PartiesOf(2, 7, 2), ElementsAre(std::pair(8, 20)));
  EXPECT_THAT(PartiesOf(2, 7, 1), ElementsAre(std::pair(8, 20)));
}

TEST_F(AttentionPartiesTest, OfAboutAsManyAsKeepTheThreadsBusy) {
  for (int question = 0; question < 8; ++question) Add(1, 20, 25);
  EXPECT_THAT(PartiesOf(3, 4, 2), ElementsAre(std::pair(4, 20), std::pair(4, 20)))
      << "three tasks would leave one of two threads idle for a quarter of the time";
  EXPECT_EQ(PartiesOf(1, 4, 8).size(), 8u) << "as many threads as questions";
}

TEST_F(AttentionPartiesTest, OfNoMoreRowsThanPlanned) {
  for (int question = 0; question < 12; ++question) Add(1, 20, 25);
  EXPECT_THAT(PartiesOf(2, 8, 2), ElementsAre(std::pair(8, 20), std::pair(4, 20)));
}

// Of many questions some guess ahead and have more rows than others: a share of the questions,
// times the most rows of one, was more than the scratch memory is for, and ended the daemon.
TEST_F(AttentionPartiesTest, NorWhereOneHasManyMoreRowsThanOthers) {
  for (int question = 0; question < 65; ++question) Add(1, 20, 25);
  Add(1, 20, 25, 16);
  for (int threads = 1; threads <= 8; ++threads) PartiesOf(1, 2, threads);
}

TEST_F(AttentionPartiesTest, OthersStayAlone) {
  Add(1, 20, 25);
  Add(2, 20, 25);
  Add(1, 18, 25);
  Add(1, 20, 5);  // too short
  Add(3, 7, 25);
  Add(3, 7, 30);  // too little in common
  EXPECT_THAT(PartiesOf(2, 4, 1),
              ::testing::UnorderedElementsAre(std::pair(2, 18), std::pair(1, 0), std::pair(1, 0),
                                              std::pair(1, 0), std::pair(1, 0)));
}

}  // namespace
}  // namespace annulus::cpu
