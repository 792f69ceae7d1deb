// The exactness matrix with a process for each rank: every row has the bits that it has on one
// rank.
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/ring/exactness_cases.h"
#include "tests/engine/ring/wire/rank_processes.h"
#include "tests/support/pairwise.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::ExactCase;
using testing::Line;
using testing::Scenario;

// The ring of a process for one scenario after the other.
class BorrowedRing final : public RingGroup {
 public:
  explicit BorrowedRing(RingGroup& ring) : ring_(ring) {}
  RingChannel& channel(int rank) override { return ring_.channel(rank); }
  absl::Status Reset() override { return ring_.Reset(); }
  std::string description() const override { return ring_.description(); }

 private:
  RingGroup& ring_;
};

// Of every pair of settings some cases, with this number of ranks.
std::vector<std::vector<int>> CasesOf(const testing::ExactCases& all, int ranks) {
  std::mt19937 random(testing::TestSeed());
  const auto cases = testing::PairwiseCases(all.sizes(), random).Make();
  auto some = testing::Thinned(cases, kSanitized ? 5 : 25);
  for (std::vector<int>& values : some) {
    values[0] =
        static_cast<int>(std::ranges::find(testing::kRanks, ranks) - testing::kRanks.begin());
  }
  return some;
}

// Runs the part of `rank`; the rows that were computed here, and those of the whole ring.
void RunCase(const ExactCase& c, const testing::ExactCases& all, RingGroup& ring, int rank,
             size_t& here, size_t& whole) {
  SCOPED_TRACE(c.name);
  const auto ops = all.OpsOf(c);
  ASSERT_TRUE(ops.ok()) << ops.status();
  const uint64_t seed = testing::TestSeed();
  Scenario scenario(c, **ops, all.backend(), seed, std::make_unique<BorrowedRing>(ring), {rank});
  scenario.Run();
  const ExactCase alone = c.OnOneRank();
  Scenario one(alone, **ops, all.backend(), seed);
  one.Run();
  here += scenario.rows();
  whole += one.rows();
  if (c.equals_one_rank()) scenario.ExpectSameBits(one);
}

class ExactProcesses : public testing::RankProcesses, public ::testing::WithParamInterface<int> {};

TEST_P(ExactProcesses, RowsHaveTheBitsOfOneRank) {
  const int ranks = GetParam();
  Start(ranks, [](RingChannel& channel, WireRing& ring, Line& line) -> std::string {
    const testing::ExactCases all;
    size_t here = 0, whole = 0;
    for (const std::vector<int>& values : CasesOf(all, channel.size())) {
      RunCase(all.CaseOf(values), all, ring, channel.rank(), here, whole);
      if (HasFailure()) return "rows differ";
    }
    line.Say(absl::StrCat(here, " of ", whole));
    line.Hear();  // a peer may still read what this rank has sent
    return "ended";
  });
  ExchangeAddresses();
  int64_t rows = 0;
  std::vector<std::string> wholes;
  for (const std::string& heard : HearAll()) {
    const std::vector<std::string> words = absl::StrSplit(heard, ' ');
    int64_t here = 0;
    ASSERT_TRUE(words.size() == 3 && absl::SimpleAtoi(words[0], &here)) << heard;
    rows += here;
    wholes.push_back(words[2]);
  }
  for (const auto& line : lines_) line->Say("go on");
  // Each row was computed, and compared, by one of them.
  for (const std::string& whole : wholes) EXPECT_EQ(whole, absl::StrCat(rows));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExactProcesses, ::testing::Values(2, 4));

}  // namespace
}  // namespace annulus
