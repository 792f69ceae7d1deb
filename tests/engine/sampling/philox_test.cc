#include "engine/sampling/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "tests/engine/sampling/chi_square.h"

namespace annulus {
namespace {

using Block = std::array<uint32_t, 4>;

// Known answers published with the authors' reference implementation (Random123).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformAtTest, StaysInRangeAndDiffersByEveryArgumentBit) {
  std::set<double> values;
  for (int bit = 0; bit < 64; ++bit) {
    values.insert(UniformAt(uint64_t{1} << bit, 0));
    values.insert(UniformAt(0, uint64_t{1} << bit));
  }
  EXPECT_EQ(values.size(), 128u);
  EXPECT_GE(*values.begin(), 0.0);
  EXPECT_LT(*values.rbegin(), 1.0);
}

TEST(UniformAtTest, IsUniformAlongPositionsAndAlongSeeds) {
  constexpr int kBins = 64;
  constexpr int kDraws = 64000;
  const std::vector<double> expected(kBins, 1.0 / kBins);
  std::vector<int> along_positions(kBins, 0), along_seeds(kBins, 0);
  for (uint64_t i = 0; i < kDraws; ++i) {
    ++along_positions[static_cast<int>(UniformAt(12345, i) * kBins)];
    ++along_seeds[static_cast<int>(UniformAt(i, 7) * kBins)];
  }
  EXPECT_LT(testing::ChiSquareScore(along_positions, expected), 4);
  EXPECT_LT(testing::ChiSquareScore(along_seeds, expected), 4);
}

// Neighbouring positions, as consecutive tokens of one text use them, are independent.
TEST(UniformAtTest, PairsOfNeighboursAreUniform) {
  constexpr int kSide = 8;
  const std::vector<double> expected(kSide * kSide, 1.0 / (kSide * kSide));
  std::vector<int> counts(kSide * kSide, 0);
  for (uint64_t i = 0; i < 64000; ++i) {
    const int first = static_cast<int>(UniformAt(99, i) * kSide);
    const int second = static_cast<int>(UniformAt(99, i + 1) * kSide);
    ++counts[first * kSide + second];
  }
  EXPECT_LT(testing::ChiSquareScore(counts, expected), 4);
}

}  // namespace
}  // namespace annulus
