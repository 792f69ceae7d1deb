#include "engine/sparse/page_summaries.h"

#include <string>

#include "gtest/gtest.h"

namespace annulus {
namespace {

SummaryKinds KindsOf(const std::string& text) { return SummariesOf(ParseAssignment(text).value()); }

TEST(PageSummaries, AreThoseThatPoliciesAskFor) {
  struct Expected {
    std::string text;
    bool bounds;
    bool means;
  };
  for (const Expected& expected :
       {Expected{"dense", false, false}, Expected{"window", false, false},
        Expected{"learned", false, false}, Expected{"adaptive", false, false},
        Expected{"window:coverage=0.9", false, false},
        Expected{"adaptive:estimator=pooled", false, true}, Expected{"hierarchical", false, true},
        Expected{"top_pages", true, false}, Expected{"auto", false, true},
        Expected{"dense; layers=1: top_pages", true, false},
        Expected{"hierarchical; heads=1: top_pages; layers=3: dense", true, true}}) {
    const SummaryKinds kinds = KindsOf(expected.text);
    EXPECT_EQ(kinds.bounds, expected.bounds) << expected.text;
    EXPECT_EQ(kinds.means, expected.means) << expected.text;
    EXPECT_EQ(kinds.any(), expected.bounds || expected.means) << expected.text;
  }
}

// A page of every shape that a server may have holds the summaries of at least one, and as many as
// its bytes allow; what lies in it does not overlap, and ends before the page does.
TEST(PageSummaries, FillAPageWithoutOverlap) {
  for (const int page_tokens : {16, 32, 64, 128, 256}) {
    for (const int k_dim : {1, 64, 80, 256}) {
      for (const size_t element : {1, 2, 4}) {
        const KvPageShape shape{page_tokens, 3, k_dim, k_dim, DType::kF8E4M3};
        const size_t part_bytes = 2 * size_t{3} * k_dim * page_tokens * element;
        for (const SummaryKinds kinds :
             {SummaryKinds{true, false}, SummaryKinds{false, true}, SummaryKinds{true, true}}) {
          SCOPED_TRACE(::testing::Message() << page_tokens << " tokens of " << k_dim << " by "
                                            << element << " bytes " << kinds.bounds << kinds.means);
          const int64_t pages = PagesSummarised(kinds, shape, part_bytes);
          ASSERT_GE(pages, 1);
          const int64_t bounds = kinds.bounds ? page_tokens / 16 * int64_t{3} * k_dim : 0;
          const int64_t means = kinds.means ? int64_t{3} * k_dim : 0;
          const int64_t floats = 2 * bounds + means;
          EXPECT_LE(pages * floats * 4, static_cast<int64_t>(part_bytes));
          EXPECT_GT((pages + 1) * floats * 4, static_cast<int64_t>(part_bytes));
          std::byte* const parts[] = {nullptr, nullptr};
          const SummaryPlaces places(kinds, shape, part_bytes, parts);
          EXPECT_EQ(places.runs().pages, pages);
          EXPECT_EQ(places.runs().runs.size(), 2u);
          EXPECT_EQ(places.least(), 0);
          EXPECT_EQ(places.greatest(), pages * bounds);
          EXPECT_EQ(places.mean(), 2 * pages * bounds);
        }
      }
    }
  }
  EXPECT_EQ(PagesSummarised({}, {64, 8, 128, 128, DType::kBF16}, 1 << 18), 0);
  // Bounds are an eighth of bf16 pages, means one in 64.
  EXPECT_EQ(PagesSummarised({true, false}, {64, 8, 128, 128, DType::kBF16}, 1 << 18), 8);
  EXPECT_EQ(PagesSummarised({false, true}, {64, 8, 128, 128, DType::kBF16}, 1 << 18), 64);
}

}  // namespace
}  // namespace annulus
