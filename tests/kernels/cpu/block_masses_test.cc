#include "kernels/ops/block_masses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/attention_fixture.h"

namespace annulus::testing {
namespace {

using BlockMassesTest = EveryTable;

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

struct MassesCase {
  int kv_heads;
  int group;                  // query heads of a kv head
  std::vector<int32_t> ends;  // [runs]
  TestMatrix scores;          // [row groups * heads, blocks]

  int heads() const { return kv_heads * group; }
};

// Lists see all blocks, the first ones or none; scores are far apart.
MassesCase RandomMasses(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % (high - low + 1));
  };
  const int kv_heads = draw(1, 3);
  const int group = draw(1, 5);
  std::vector<int32_t> ends;
  for (int runs = draw(1, 5), end = 0; runs > 0; --runs) ends.push_back(end += draw(1, 9));
  const int64_t lists = int64_t{ends.back() + draw(0, 2)} * kv_heads * group;
  const int64_t blocks = draw(0, 3) == 0 ? draw(1, 20) : draw(1, 2500);
  MassesCase c{kv_heads, group, ends, TestMatrix(lists, blocks, draw(0, 3))};
  c.scores.FillNormal(random, static_cast<float>(draw(1, 12)));
  const auto base = static_cast<float>(draw(-100, 100));
  for (int64_t list = 0; list < lists; ++list) {
    const int64_t seen = draw(0, 7) == 0 ? 0 : draw(0, 1) ? blocks : random() % blocks;
    for (int64_t b = 0; b < blocks; ++b) {
      float& score = c.scores.row(list)[b];
      score = b < seen && random() % 9 != 0 ? score + base : kUnseen;
    }
  }
  return c;
}

double SumOf(std::span<const float> scores) {
  const float most = *std::max_element(scores.begin(), scores.end());
  if (most == kUnseen) return kUnseen;
  double sum = 0;
  for (const float score : scores) sum += std::exp(double{score} - most);
  return most + std::log(sum);
}

std::vector<double> SumsOf(const TestMatrix& scores) {
  std::vector<double> sums;
  for (int64_t list = 0; list < scores.rows(); ++list) {
    sums.push_back(SumOf({scores.row(list), static_cast<size_t>(scores.cols())}));
  }
  return sums;
}

// What the contract allows: 1e-5, and the rounding of the result, once for each slice.
void ExpectSums(std::span<const float> actual, std::span<const double> expected, int slices) {
  for (size_t list = 0; list < expected.size(); ++list) {
    if (std::isinf(expected[list])) {
      ASSERT_EQ(actual[list], kUnseen) << list;
    } else {
      ASSERT_NEAR(actual[list], expected[list],
                  slices * (1e-5 + 2 * kUnit * std::abs(expected[list])))
          << list;
    }
  }
}

// The op over columns in slices, one behind the other.
std::vector<float> Sums(const OpTable& table, const TestMatrix& scores, int slices, int threads) {
  std::vector<float> sums(static_cast<size_t>(scores.rows()) + 1, -77);
  const auto stream = MakeStream(table, threads);
  for (int s = 0; s < slices; ++s) {
    const int64_t begin = scores.cols() * s / slices;
    const int64_t end = scores.cols() * (s + 1) / slices;
    EXPECT_TRUE(
        table.score_sums(*stream, {scores.view().columns(begin, end - begin), sums.data(), s > 0})
            .ok());
  }
  EXPECT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(sums.back(), -77);
  sums.pop_back();
  return sums;
}

TestMatrix Masses(const OpTable& table, const MassesCase& c, std::span<const float> sums,
                  int slices, int threads) {
  TestMatrix masses(std::ssize(c.ends) * c.kv_heads, c.scores.cols(), 2);
  const auto stream = MakeStream(table, threads);
  for (int s = 0; s < slices; ++s) {
    const int64_t begin = c.scores.cols() * s / slices;
    const int64_t count = c.scores.cols() * (s + 1) / slices - begin;
    BlockMassesParams params;
    params.scores = c.scores.view().columns(begin, count);
    params.sums = sums.data();
    params.ends = c.ends;
    params.heads = c.heads();
    params.kv_heads = c.kv_heads;
    params.masses = masses.view().columns(begin, count);
    EXPECT_TRUE(table.block_masses(*stream, params).ok());
  }
  EXPECT_TRUE(stream->Synchronize().ok());
  EXPECT_TRUE(masses.PaddingUntouched());
  return masses;
}

TEST_P(BlockMassesTest, SumsMatchFloat64AndDoNotDependOnSlicesOrThreads) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const MassesCase c = RandomMasses(seed);
    const std::vector<double> expected = SumsOf(c.scores);
    for (const int slices : {1, 3}) {
      SCOPED_TRACE(slices);
      const std::vector<float> actual = Sums(table(), c.scores, slices, 2);
      ASSERT_NO_FATAL_FAILURE(ExpectSums(actual, expected, slices));
      ASSERT_EQ(actual, Sums(table(), c.scores, slices, 1)) << "depends on the threads";
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSums(Sums(Reference(), c.scores, 1, 1), expected, 1));
  }
}

// The mean of shares of the rows and heads of a run, and how far off float32 may be: each share by
// what the contract says, their sum as it grows.
struct Mass {
  double value = 0;
  double bound = 0;
};
Mass MassOf(const MassesCase& c, std::span<const float> sums, int64_t run, int64_t kv_head,
            int64_t block) {
  const int64_t begin = run == 0 ? 0 : c.ends[run - 1];
  const double lists = static_cast<double>(c.ends[run] - begin) * c.group;
  Mass mass;
  for (int64_t row = begin; row < c.ends[run]; ++row) {
    for (int64_t head = kv_head * c.group; head < (kv_head + 1) * c.group; ++head) {
      const int64_t list = row * c.heads() + head;
      if (sums[list] == kUnseen) continue;
      const double at = double{c.scores.row(list)[block]} - sums[list];
      // Shares below 1e-37 may be 0.
      if (at < -85) {
        mass.bound += 1e-36 / lists;
      } else {
        mass.value += std::exp(at) / lists;
        mass.bound += std::exp(at) / lists * (3e-6 + 2e-7 * std::abs(at));
      }
    }
  }
  mass.bound += mass.value * (lists + 1) * kUnit;
  return mass;
}

TEST_P(BlockMassesTest, MassesMatchFloat64AndDoNotDependOnSlicesOrThreads) {
  for (uint32_t seed = 101; seed <= 130; ++seed) {
    SCOPED_TRACE(seed);
    const MassesCase c = RandomMasses(seed);
    std::vector<float> sums;
    for (const double sum : SumsOf(c.scores)) sums.push_back(static_cast<float>(sum));
    TestMatrix actual = Masses(table(), c, sums, 1, 2);
    const TestMatrix reference = Masses(Reference(), c, sums, 1, 1);
    for (int64_t row = 0; row < actual.rows(); ++row) {
      double total = 0;
      bool seen = false;
      for (int64_t b = 0; b < actual.cols(); ++b) {
        const Mass mass = MassOf(c, sums, row / c.kv_heads, row % c.kv_heads, b);
        ASSERT_NEAR(actual.row(row)[b], mass.value, mass.bound) << row << " " << b;
        ASSERT_NEAR(reference.row(row)[b], mass.value, mass.bound) << row << " " << b;
        total += actual.row(row)[b];
        seen = seen || mass.value > 0;
      }
      ASSERT_LE(total, 1 + 1e-4) << row;
      ASSERT_EQ(total > 0, seen) << row;
    }
    for (const int slices : {1, 4}) {
      const TestMatrix again = Masses(table(), c, sums, slices, 1);
      for (int64_t row = 0; row < actual.rows(); ++row) {
        ASSERT_TRUE(SameBits(actual.row(row), again.row(row), actual.cols())) << row;
      }
    }
  }
}

// Nothing to do is nothing: no lists, and no blocks.
TEST_P(BlockMassesTest, NothingIsPooledOfNothing) {
  const auto stream = MakeStream(table(), 2);
  EXPECT_TRUE(table().score_sums(*stream, {}).ok());
  std::vector<float> sums(6, 5);
  EXPECT_TRUE(table().score_sums(*stream, {{nullptr, 6, 0, 0}, sums.data(), true}).ok());
  EXPECT_TRUE(table().score_sums(*stream, {{nullptr, 3, 0, 0}, sums.data(), false}).ok());
  BlockMassesParams params;
  params.heads = 2;
  params.kv_heads = 1;
  EXPECT_TRUE(table().block_masses(*stream, params).ok());
  const std::vector<int32_t> ends = {1, 3};
  params.scores = {nullptr, 6, 0, 0};
  params.sums = sums.data();
  params.ends = ends;
  params.masses = {nullptr, 2, 0, 0};
  EXPECT_TRUE(table().block_masses(*stream, params).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(sums, (std::vector<float>{kUnseen, kUnseen, kUnseen, 5, 5, 5}));
}

ANNULUS_FOR_EVERY_TABLE(BlockMassesTest);

}  // namespace
}  // namespace annulus::testing
