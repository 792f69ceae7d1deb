#include "engine/sparse/pattern_pairs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/sparse/block_pattern.h"
#include "engine/sparse/dilated.h"

namespace annulus {
namespace {

constexpr int kPairHeads = 4;
constexpr int64_t kPairTokens = 32'768;

PatternPairs PairsOf(const std::string& text, const std::vector<int32_t>& layers = {0}) {
  return {ParseAssignment(text).value(), layers, kPairHeads, kPairTokens};
}

double Exact(const std::string& text, int32_t begin, int32_t end) {
  const AttentionPolicy policy = ParsePolicy(text).value();
  const BlockPattern pattern = BuildBlockPattern(policy, ShapeFor(policy, begin, end, kPairHeads));
  return CountPairs(pattern, begin, end).chosen;
}

TEST(PatternPairsTest, CountsAboutWhatTheListsHold) {
  for (const char* text :
       {"window", "window:window=1024", "window:block=16,sinks=0,window=100",
        "strided:stride=8,local=4", "strided:stride=3,local=0", "global_local:window=2048,global=2",
        "random:window=512,global=1,random=8", "dilated_blocks:rates=1/2/4"}) {
    const PatternPairs pairs = PairsOf(text);
    for (const auto& [begin, end] : {std::pair<int32_t, int32_t>{0, 32'768},
                                     {0, 2048},
                                     {8192, 9216},
                                     {20'000, 20'512},
                                     {31'744, 32'768}}) {
      EXPECT_NEAR(pairs.Count(begin, end) / Exact(text, begin, end), 1, 0.03)
          << text << ", rows " << begin << " to " << end;
    }
  }
}

TEST(PatternPairsTest, ChunksAddUpToTheWhole) {
  const PatternPairs pairs = PairsOf("strided");
  double sum = 0;
  for (int64_t begin = 0; begin < 40'000; begin += 500) sum += pairs.Count(begin, begin + 500);
  EXPECT_NEAR(sum / pairs.Count(0, 40'000), 1, 1e-9);
  EXPECT_EQ(pairs.Count(700, 700), 0);
}

// Segments begin anew, so only whole ones count right.
TEST(PatternPairsTest, CountsTheBranchesOfWholeSegments) {
  const char* const text = "dilated:segments=2048/8192,rates=1/4";
  const auto branches = DilatedBranches(ParsePolicy(text).value());
  const double exact = CountDilatedPairs(branches, 8, 0, kPairTokens).chosen;
  EXPECT_NEAR(PairsOf(text).Count(0, kPairTokens) / exact, 1, 0.02);
}

TEST(PatternPairsTest, IsTheMeanOverLayersAndHeads) {
  const double dense = DensePairs(0, kPairTokens).causal;
  EXPECT_NEAR(PairsOf("dense").Count(0, kPairTokens) / dense, 1, 1e-9);
  const double window = PairsOf("window:window=1024").Count(0, kPairTokens);
  // Layer 0, and one of four heads in layer 1, attend everything.
  const PatternPairs mixed =
      PairsOf("window:window=1024; layers=0: dense; layers=1,heads=0: dense", {0, 1});
  EXPECT_NEAR(mixed.Count(0, kPairTokens) / (0.625 * dense + 0.375 * window), 1, 1e-9);
  // A layer that is not asked for counts nothing.
  const PatternPairs second = PairsOf("window:window=1024; layers=0: dense", {1});
  EXPECT_NEAR(second.Count(0, kPairTokens) / window, 1, 1e-9);
  // Heads that follow other rates attend other numbers of keys.
  const PatternPairs first = PairsOf("dense; heads=0: dilated_blocks:rates=1/8");
  EXPECT_NEAR(first.Count(0, kPairTokens) / dense, 1, 0.01);
}

}  // namespace
}  // namespace annulus
