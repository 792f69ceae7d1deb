#include "engine/memory/evicted_pages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace annulus {
namespace {

class EvictedPagesTest : public ::testing::Test {
 protected:
  ContentHash Hash() {
    ContentHash hash{};
    const uint64_t value = random_();
    std::memcpy(hash.data(), &value, sizeof(value));
    return hash;
  }

  std::mt19937_64 random_{17};
  EvictedPages evicted_;
};

TEST_F(EvictedPagesTest, ScopesDoNotAnswerForEachOther) {
  const ContentHash page = Hash();
  EXPECT_FALSE(evicted_.Has(1, page));
  EXPECT_EQ(evicted_.bytes(), 0);
  evicted_.Add(1, page);
  EXPECT_TRUE(evicted_.Has(1, page));
  EXPECT_FALSE(evicted_.Has(2, page));
  EXPECT_FALSE(evicted_.Has(1, Hash()));
}

// As the header states: (1 - 1/4096)^4096 of the oldest, and more of what came later.
TEST_F(EvictedPagesTest, ForgetsAsOftenAsItSays) {
  std::vector<ContentHash> pages;
  for (uint64_t i = 0; i < 2 * EvictedPages::kPages; ++i) {
    pages.push_back(Hash());
    evicted_.Add(1, pages.back());
  }
  int known = 0;
  double expected = 0;
  for (size_t i = 0; i < pages.size(); ++i) {
    known += evicted_.Has(1, pages[i]) ? 1 : 0;
    expected += std::pow(1 - 1.0 / EvictedPages::kPages, pages.size() - 1 - i);
  }
  EXPECT_NEAR(known, expected, 0.03 * expected);
  for (int i = 0; i < 100'000; ++i) ASSERT_FALSE(evicted_.Has(1, Hash()));
}

TEST_F(EvictedPagesTest, TheScopeThatLostNothingForLongestGoesFirst) {
  std::vector<ContentHash> pages;
  for (int scope = 0; scope < EvictedPages::kScopes; ++scope) {
    pages.push_back(Hash());
    evicted_.Add(scope, pages.back());
  }
  const int64_t most = evicted_.bytes();
  EXPECT_EQ(most, EvictedPages::kScopes * int64_t{EvictedPages::kPages} * 8);
  evicted_.Add(0, Hash());
  evicted_.Add(1000, pages[1]);
  EXPECT_EQ(evicted_.bytes(), most);
  EXPECT_TRUE(evicted_.Has(0, pages[0]));
  EXPECT_FALSE(evicted_.Has(1, pages[1]));
  EXPECT_TRUE(evicted_.Has(1000, pages[1]));
  EXPECT_TRUE(evicted_.Has(2, pages[2]));
}

}  // namespace
}  // namespace annulus
