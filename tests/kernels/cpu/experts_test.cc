#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

using ExpertsTest = EveryTable;

TEST_P(ExpertsTest, RouteChoosesTheLargestWithTheirSoftmax) {
  std::mt19937 random(31);
  for (const int experts : {1, 3, 8, 60, 128}) {
    for (const int chosen : {1, 2, 8}) {
      if (chosen > experts) continue;
      for (const bool of_chosen : {false, true}) {
        SCOPED_TRACE(::testing::Message() << chosen << " of " << experts);
        TestMatrix logits(37, experts, 2);
        logits.FillNormal(random, 3);
        for (int e = 1; e < experts; e += 2) logits.row(0)[e] = logits.row(0)[0];  // ties
        std::vector<int32_t> picks(37 * chosen);
        std::vector<float> weights(37 * chosen);
        ASSERT_TRUE(table()
                        .route(*MakeStream(table(), 2),
                               {logits.view(), chosen, of_chosen, picks.data(), weights.data()})
                        .ok());
        for (int64_t r = 0; r < 37; ++r) {
          const float* row = logits.row(r);
          std::vector<int32_t> order(experts);
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(),
                           [&](int32_t a, int32_t b) { return row[a] > row[b]; });
          double sum = 0;
          for (int i = 0; i < (of_chosen ? chosen : experts); ++i) sum += std::exp(row[order[i]]);
          std::sort(order.begin(), order.begin() + chosen);
          for (int i = 0; i < chosen; ++i) {
            ASSERT_EQ(picks[r * chosen + i], order[i]) << "row " << r;
            const double expected = std::exp(double{row[order[i]]}) / sum;
            ASSERT_NEAR(weights[r * chosen + i], expected, 2e-6 * expected);
          }
        }
      }
    }
  }
}

// Whatever a model's numbers come to, what is chosen can be looked up.
TEST_P(ExpertsTest, RouteChoosesDistinctExpertsByAnyLogits) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int kExperts = 70;
  constexpr int kChosen = 5;
  std::mt19937 random(34);
  TestMatrix logits(5, kExperts);
  logits.FillNormal(random);
  for (int e = 0; e < kExperts; ++e) {
    logits.row(0)[e] = kNan;
    logits.row(1)[e] = e % 3 == 1 ? kInfinity : kNan;
    logits.row(2)[e] = -kInfinity;
    if (e != 66 && e != 9) logits.row(3)[e] = e % 2 == 0 ? kNan : -kInfinity;
    if (e > 30) logits.row(4)[e] = kNan;
  }
  const auto route = [&](const OpTable& ops, std::vector<float>& weights) {
    std::vector<int32_t> picks(5 * kChosen, -1);
    EXPECT_TRUE(ops.route(*MakeStream(ops, 2), {std::as_const(logits).view(), kChosen, true,
                                                picks.data(), weights.data()})
                    .ok());
    return picks;
  };
  std::vector<float> weights(5 * kChosen);
  std::vector<float> expected_weights(5 * kChosen);
  const std::vector<int32_t> picks = route(table(), weights);
  EXPECT_EQ(picks, route(Reference(), expected_weights));
  EXPECT_EQ(std::vector<int32_t>(picks.begin(), picks.begin() + kChosen),
            (std::vector<int32_t>{0, 1, 2, 3, 4}));
  for (size_t i = 0; i < picks.size(); ++i) {
    EXPECT_TRUE(picks[i] >= 0 && picks[i] < kExperts) << picks[i];
    EXPECT_TRUE(i % kChosen == 0 || picks[i] > picks[i - 1]) << i;
    EXPECT_EQ(std::isnan(weights[i]), std::isnan(expected_weights[i])) << i;
  }
}

struct ChoosingShape {
  int64_t rows;
  int experts;
  int chosen;
  int64_t in;
  int64_t out;
};

// One expert for all, every expert for all, those of which some are chosen often, and those that
// most rows choose.
const ChoosingShape kChoosingShapes[] = {
    {1, 1, 1, 33, 5},   {1, 9, 4, 70, 37}, {16, 3, 3, 45, 17}, {13, 40, 6, 129, 9},
    {16, 5, 2, 64, 70}, {5, 80, 1, 31, 3}, {16, 4, 3, 69, 9},
};

// Matrices of all experts of a layer, and what rows chose.
class ChoosingCase {
 public:
  ChoosingCase(const OpTable& table, const ChoosingShape& shape, DType dtype, uint32_t seed)
      : table_(table), shape_(shape), random_(seed), biases_(shape.experts, shape.out, 2) {
    biases_.FillNormal(random_);
    std::vector<const PackedMatrix*> matrices;
    std::vector<const float*> biases;
    for (int e = 0; e < shape.experts; ++e) {
      TestMatrix weight(shape.out, shape.in);
      weight.FillNormal(random_);
      packed_.push_back(std::make_unique<PackedMatrix>(Pack(table, weight, dtype)));
      matrices.push_back(packed_.back().get());
      biases.push_back(e % 3 == 1 ? nullptr : biases_.row(e));
    }
    const auto stream = MakeStream(table, 1);
    listed_ =
        ListExperts(BackendOf(table), *stream, std::move(matrices), std::move(biases)).value();
    std::vector<int32_t> all(shape.experts);
    std::iota(all.begin(), all.end(), 0);
    for (int64_t r = 0; r < shape.rows; ++r) {
      if (r % 4 != 3) std::shuffle(all.begin(), all.end(), random_);  // else as the row before
      chosen_.insert(chosen_.end(), all.begin(), all.begin() + shape.chosen);
    }
  }

  // Each choice has the bits of `linear` with its expert's weights, whoever shares them.
  void ExpectBitsOfLinear(Activations activations, bool shared) {
    const int64_t choices = shape_.rows * shape_.chosen;
    TestMatrix input(shared ? shape_.rows : choices, shape_.in, 3);
    input.FillNormal(random_);
    TestMatrix output(choices, shape_.out, 1);
    TestMatrix expected(choices, shape_.out, 1);
    const auto stream = MakeStream(table_, 2);
    ASSERT_TRUE(table_
                    .expert_linear(*stream, {input.view(), &listed_, chosen_.data(), shape_.chosen,
                                             output.view(), activations})
                    .ok());
    for (int64_t i = 0; i < choices; ++i) {
      LinearParams one;
      one.input = std::as_const(input).view().row_range(shared ? i / shape_.chosen : i, 1);
      one.weight = listed_.matrices[static_cast<size_t>(chosen_[i])];
      one.bias = listed_.biases[static_cast<size_t>(chosen_[i])];
      one.output = expected.view().row_range(i, 1);
      one.activations = activations;
      ASSERT_TRUE(table_.linear(*stream, one).ok());
    }
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_TRUE(output.PaddingUntouched());
    for (int64_t i = 0; i < choices; ++i) {
      ASSERT_TRUE(SameBits(output.row(i), expected.row(i), shape_.out)) << "choice " << i;
    }
  }

 private:
  const OpTable& table_;
  const ChoosingShape shape_;
  std::mt19937 random_;
  TestMatrix biases_;
  std::vector<std::unique_ptr<PackedMatrix>> packed_;
  ExpertMatrices listed_;
  std::vector<int32_t> chosen_;
};

TEST_P(ExpertsTest, ChosenExpertsGiveTheBitsOfLinear) {
  uint32_t seed = 40;
  for (const ChoosingShape& shape : kChoosingShapes) {
    for (const DType dtype : WeightDTypesOf(table())) {
      SCOPED_TRACE(::testing::Message()
                   << "seed " << seed << " rows " << shape.rows << ", " << shape.chosen << " of "
                   << shape.experts << " " << DTypeName(dtype));
      ChoosingCase test(table(), shape, dtype, seed++);
      test.ExpectBitsOfLinear(Activations::kFloat, seed % 2 == 0);
      if (dtype == DType::kF8E4M3) {
        test.ExpectBitsOfLinear(Activations::kFp8, true);
        test.ExpectBitsOfLinear(Activations::kFp8, false);
      }
      const bool takes_codes =
          table().name == "cpu/reference" || (MultipliesBf16(table()) && !IsOfGpu(table()));
      if (dtype == DType::kI8 && takes_codes) {
        test.ExpectBitsOfLinear(Activations::kInt8, true);
        test.ExpectBitsOfLinear(Activations::kInt8, false);
      }
    }
  }
}

TEST_P(ExpertsTest, NoRowsChooseNothing) {
  ChoosingCase test(table(), {0, 4, 2, 10, 6}, DType::kF32, 7);
  test.ExpectBitsOfLinear(Activations::kFloat, true);
}

// Choices are added in their order, as scatter_add does it one after the other.
TEST_P(ExpertsTest, AddsChoicesWithTheBitsOfScatterAdd) {
  std::mt19937 random(35);
  for (const int chosen : {1, 3, 8}) {
    for (const int64_t cols : {1, 33, 1030}) {
      TestMatrix input(6 * chosen, cols, 2);
      TestMatrix weights(1, 6 * chosen);
      TestMatrix output(6, cols, 3);
      input.FillNormal(random);
      weights.FillNormal(random);
      output.FillNormal(random);
      TestMatrix expected = output;
      const auto stream = MakeStream(table(), 2);
      ASSERT_TRUE(
          table().add_choices(*stream, {input.view(), weights.row(0), chosen, output.view()}).ok());
      for (int64_t r = 0; r < 6; ++r) {
        for (int64_t i = r * chosen; i < (r + 1) * chosen; ++i) {
          const std::vector<int32_t> row = {static_cast<int32_t>(r)};
          const std::vector<float> weight = {weights.row(0)[i]};
          ASSERT_TRUE(table()
                          .scatter_add(*stream,
                                       {input.view().row_range(i, 1), row, weight, expected.view()})
                          .ok());
        }
      }
      ASSERT_TRUE(stream->Synchronize().ok());
      EXPECT_TRUE(output.PaddingUntouched());
      for (int64_t r = 0; r < 6; ++r) {
        ASSERT_TRUE(SameBits(output.row(r), expected.row(r), cols)) << chosen << " " << cols;
      }
    }
  }
}

TEST_P(ExpertsTest, GathersRowsAndAddsThemBack) {
  std::mt19937 random(32);
  for (const int64_t cols : {1, 7, 16, 33, 1000}) {
    TestMatrix input(20, cols, 3);
    TestMatrix target(20, cols, 1);
    input.FillNormal(random);
    target.FillNormal(random);
    const TestMatrix before = target;
    const std::vector<int32_t> rows = {3, 0, 19, 7};
    const std::vector<float> weights = {0.5f, -2, 0, 1.25f};
    TestMatrix gathered(4, cols, 2);
    ASSERT_TRUE(
        table().gather_rows(*MakeStream(table(), 2), {input.view(), rows, gathered.view()}).ok());
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(SameBits(gathered.row(i), input.row(rows[i]), cols));
    ASSERT_TRUE(
        table()
            .scatter_add(*MakeStream(table(), 2), {gathered.view(), rows, weights, target.view()})
            .ok());
    EXPECT_TRUE(gathered.PaddingUntouched() && target.PaddingUntouched());
    for (int64_t r = 0; r < 20; ++r) {
      const auto found = std::find(rows.begin(), rows.end(), r);
      const float weight = found == rows.end() ? 0 : weights[found - rows.begin()];
      for (int64_t c = 0; c < cols; ++c) {
        const double added = double{weight} * input.row(r)[c];
        ASSERT_NEAR(target.row(r)[c], before.row(r)[c] + added,
                    4 * kUnit * (std::abs(before.row(r)[c]) + std::abs(added)));
      }
    }
  }
}

// A sink is the state {0, sink}, merged.
TEST_P(ExpertsTest, SinkIsAStateWithoutValue) {
  std::mt19937 random(33);
  const int heads = 3;
  const int dim = 20;
  TestMatrix o(5, heads * dim);
  TestMatrix lse(5, heads);
  o.FillNormal(random);
  lse.FillNormal(random, 4);
  lse.row(4)[1] = -std::numeric_limits<float>::infinity();  // no key seen
  for (int d = 0; d < dim; ++d) o.row(4)[dim + d] = 0;
  const TestMatrix before = o;
  const TestMatrix lse_before = lse;
  const std::vector<float> sink = {0.5f, -3, 40};
  const AttentionState state{o.row(0), lse.row(0), 5, heads, dim};
  ASSERT_TRUE(table().merge_sink(*MakeStream(table(), 2), {state, sink.data()}).ok());
  for (int64_t r = 0; r < 5; ++r) {
    for (int h = 0; h < heads; ++h) {
      const double old = lse_before.row(r)[h];
      const double both = std::log(std::exp(old) + std::exp(double{sink[h]}));
      ASSERT_NEAR(lse.row(r)[h], both, 1e-5 * std::max(1.0, std::abs(both)));
      for (int d = 0; d < dim; ++d) {
        const double expected = before.row(r)[h * dim + d] * std::exp(old - both);
        ASSERT_NEAR(o.row(r)[h * dim + d], expected, 1e-5 * std::abs(expected) + 1e-30);
      }
    }
  }
}

ANNULUS_FOR_EVERY_TABLE(ExpertsTest);

}  // namespace
}  // namespace annulus::testing
