// Ring attention against float64 attention over the keys and values that the pages hold, and bit by
// bit against a ring of one rank with chunks of its own, for every combination of what can differ
// between two rings. The suite takes a pairwise covering of all axes and random cases of the full
// product; both print their seed.
//   ANNULUS_EXACTNESS_SEED=N      repeats a run
//   ANNULUS_EXACTNESS_SAMPLES=N   random cases instead of kSamples
//   ANNULUS_EXACTNESS=full        the whole product as well, 518,400 cases, each with one of the
//                                 kernel tables at random, on its ring and on one rank;
//                                 --gtest_filter='*WholeProduct*/N' takes one rank count

#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/ring/exactness_cases.h"
#include "tests/support/pairwise.h"
#include "tests/support/thinned.h"
#include "tests/support/wire_rings.h"

namespace annulus {
namespace {

using testing::ExactCase;
using testing::Scenario;

// Fewer under the thread sanitizer, where every pair of settings is covered all the same.
constexpr int64_t kSamples = kThreadSanitizer ? 25 : kSanitized ? 75 : 150;

class Exactness : public ::testing::Test {
 protected:
  // Messages are addresses, or travel by `wires`.
  void Check(const std::vector<int>& values, uint64_t seed,
             std::optional<testing::WireKind> wires = {});

  const testing::ExactCases all_;
  const std::vector<int> sizes_ = all_.sizes();
};

void Exactness::Check(const std::vector<int>& values, uint64_t seed,
                      std::optional<testing::WireKind> wires) {
  const ExactCase c = all_.CaseOf(values);
  SCOPED_TRACE(::testing::Message() << c.name << "; ANNULUS_EXACTNESS_SEED=" << seed);
  const auto ops = all_.OpsOf(c);
  ASSERT_TRUE(ops.ok()) << ops.status();
  std::unique_ptr<RingGroup> ring;
  if (wires.has_value()) ring = testing::OpenWireRing(*wires, c.ranks).value();
  Scenario scenario(c, **ops, all_.backend(), seed, std::move(ring));
  scenario.Run();
  // A table may round queries and weights to bf16 where pages hold no more than that.
  const bool narrow =
      c.shape.dtype != DType::kF32 && c.shape.dtype != DType::kF16 && c.table != "cpu/reference";
  ASSERT_NO_FATAL_FAILURE(scenario.Check(narrow ? 0x1p-8 : 0));
  if (!c.equals_one_rank()) return;
  const ExactCase alone = c.OnOneRank();
  Scenario one(alone, **ops, all_.backend(), seed);
  one.Run();
  scenario.ExpectSameBits(one);
}

int64_t Variable(const char* name, int64_t fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::stoll(value) : fallback;
}

uint64_t Seed() {
  const uint64_t seed =
      Variable("ANNULUS_EXACTNESS_SEED", static_cast<int64_t>(testing::TestSeed()));
  std::cout << "ANNULUS_EXACTNESS_SEED=" << seed << std::endl;
  return seed;
}

TEST_F(Exactness, EveryPairOfSettings) {
  const uint64_t seed = Seed();
  std::mt19937 random(seed);
  const auto cases = testing::PairwiseCases(sizes_, random).Make();
  std::cout << cases.size() << " cases" << std::endl;
  for (const std::vector<int>& values : cases) {
    ASSERT_NO_FATAL_FAILURE(Check(values, seed));
  }
}

TEST_F(Exactness, RandomSettings) {
  const uint64_t seed = Seed();
  std::mt19937 random(seed);
  for (int64_t n = Variable("ANNULUS_EXACTNESS_SAMPLES", kSamples); n > 0; --n) {
    std::vector<int> values;
    for (const int size : sizes_) {
      values.push_back(std::uniform_int_distribution<int>(0, size - 1)(random));
    }
    ASSERT_NO_FATAL_FAILURE(Check(values, seed));
  }
}

// Of every pair of settings some cases, by wires: ANNULUS_PRODUCTS=full takes all.
class OverWires : public Exactness, public ::testing::WithParamInterface<testing::WireKind> {};

TEST_P(OverWires, RowsHaveTheSameBits) {
  const absl::Status possible = testing::CanTest(GetParam());
  if (!possible.ok()) GTEST_SKIP() << possible.message();
  const uint64_t seed = Seed();
  std::mt19937 random(seed);
  const auto cases = testing::PairwiseCases(sizes_, random).Make();
  for (const std::vector<int>& values : testing::Thinned(cases, kSanitized ? 10 : 40)) {
    ASSERT_NO_FATAL_FAILURE(Check(values, seed, GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Both, OverWires,
                         ::testing::Values(testing::WireKind::kMemory, testing::WireKind::kUcx),
                         [](const auto& info) {
                           return info.param == testing::WireKind::kUcx ? "Ucx" : "Memory";
                         });

class WholeProduct : public Exactness, public ::testing::WithParamInterface<int> {};

// One rank count of the product. The seed decides which kernel table a combination meets.
TEST_P(WholeProduct, IsExact) {
  const char* mode = std::getenv("ANNULUS_EXACTNESS");
  if (mode == nullptr || std::string(mode) != "full") GTEST_SKIP() << "ANNULUS_EXACTNESS=full";
  const uint64_t seed = Seed();
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> table(0, sizes_.back() - 1);
  const size_t axes = sizes_.size() - 1;
  std::vector<int> values(sizes_.size(), 0);
  values[0] = GetParam();
  for (int64_t cases = 1;; ++cases) {
    values[axes] = table(random);
    ASSERT_NO_FATAL_FAILURE(Check(values, seed));
    size_t axis = 1;
    while (axis < axes && ++values[axis] == sizes_[axis]) values[axis++] = 0;
    if (axis == axes) {
      std::cout << cases << " cases" << std::endl;
      return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, WholeProduct,
                         ::testing::Range(0, static_cast<int>(testing::kRanks.size())));

}  // namespace
}  // namespace annulus
