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
        RouteParams params{.logits = logits.view(), .experts = picks.data()};
        params.rule = {.chosen = chosen, .normalised = of_chosen};
        params.weights = weights.data();
        ASSERT_TRUE(table().route(*MakeStream(table(), 2), params).ok());
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

// The choice and the weights of a row as the contract says, in float64.
void ExpectRouted(const RoutingRule& rule, const float* logits, const float* bias, int experts,
                  const int32_t* picks, const float* weights) {
  std::vector<double> scores, keys;
  for (int e = 0; e < experts; ++e) {
    scores.push_back(1 / (1 + std::exp(-double{logits[e]})));
    keys.push_back(scores.back() + (bias == nullptr ? 0 : bias[e]));
  }
  const int size = experts / rule.groups;
  std::vector<std::pair<double, int>> groups;
  for (int g = 0; g < rule.groups; ++g) {
    std::vector<double> group(keys.begin() + g * size, keys.begin() + (g + 1) * size);
    std::sort(group.rbegin(), group.rend());
    groups.emplace_back(-group[0] - (size > 1 ? group[1] : 0), g);
  }
  std::sort(groups.begin(), groups.end());
  std::vector<std::pair<double, int>> among;
  for (int g = 0; g < rule.chosen_groups; ++g) {
    const int first = groups[static_cast<size_t>(g)].second * size;
    for (int e = first; e < first + size; ++e) among.emplace_back(-keys[e], e);
  }
  std::sort(among.begin(), among.end());
  double sum = 0;
  std::vector<int32_t> expected;
  for (int i = 0; i < rule.chosen; ++i) {
    expected.push_back(among[static_cast<size_t>(i)].second);
    sum += scores[static_cast<size_t>(expected.back())];
  }
  std::sort(expected.begin(), expected.end());
  ASSERT_EQ(std::vector<int32_t>(picks, picks + rule.chosen), expected);
  for (int i = 0; i < rule.chosen; ++i) {
    const double score = scores[static_cast<size_t>(expected[static_cast<size_t>(i)])];
    const double weight = rule.scale * score / (rule.normalised ? sum : 1);
    ASSERT_NEAR(weights[i], weight, 3e-6 * weight);
  }
}

struct SigmoidShape {
  int experts;
  int chosen;
  int groups = 1;
  int chosen_groups = 1;
};

// Beside usual ones: a gate of one, all chosen, groups of two, all groups, as many as fit a warp.
const SigmoidShape kSigmoidShapes[] = {
    {1, 1},        {7, 3},           {5, 5},        {128, 8},          {256, 8, 8, 4},
    {12, 3, 6, 2}, {160, 6, 80, 40}, {24, 4, 3, 3}, {1024, 64, 32, 4}, {96, 2, 32, 1},
};

TEST_P(ExpertsTest, RoutesBySigmoidScoresWithABiasAndGroups) {
  std::mt19937 random(36);
  for (const SigmoidShape& shape : kSigmoidShapes) {
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(::testing::Message() << shape.chosen << " of " << shape.experts << ", "
                                        << shape.chosen_groups << " of " << shape.groups);
      TestMatrix logits(19, shape.experts, 2);
      TestMatrix bias(1, shape.experts);
      logits.FillNormal(random, 2);
      bias.FillNormal(random, 0.5f);
      std::vector<int32_t> picks(19 * shape.chosen), same_picks(picks);
      std::vector<float> weights(19 * shape.chosen), same_weights(weights);
      RouteParams params{.logits = std::as_const(logits).view()};
      params.rule = {shape.chosen, RoutingRule::Scores::kSigmoid, with_bias,
                     shape.groups, shape.chosen_groups,           with_bias ? 2.5f : 1.0f};
      params.bias = with_bias ? bias.row(0) : nullptr;
      const auto route = [&](const OpTable& ops, std::vector<int32_t>& to,
                             std::vector<float>& to_weights) {
        params.experts = to.data();
        params.weights = to_weights.data();
        ASSERT_TRUE(ops.route(*MakeStream(ops, 2), params).ok());
      };
      route(table(), picks, weights);
      route(Reference(), same_picks, same_weights);
      EXPECT_EQ(picks, same_picks);
      for (int64_t r = 0; r < 19; ++r) {
        ExpectRouted(params.rule, logits.row(r), params.bias, shape.experts,
                     picks.data() + r * shape.chosen, weights.data() + r * shape.chosen);
      }
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_NEAR(weights[i], same_weights[i], 2e-6f * same_weights[i]);
      }
    }
  }
}

// A score that is used up says nothing of the order; the first experts of the first groups count.
TEST_P(ExpertsTest, FactorsMultiplyTheWeightsOfTheirExperts) {
  std::mt19937 random(35);
  constexpr int kExperts = 7, kChosen = 3, kRows = 5;
  TestMatrix logits(kRows, kExperts, 0);
  logits.FillNormal(random, 2);
  const std::vector<float> factors = {0.5f, 1.25f, -1, 0, 3, 0.1f, 2};
  for (const RoutingRule::Scores scores :
       {RoutingRule::Scores::kSoftmax, RoutingRule::Scores::kSigmoid}) {
    std::vector<int32_t> picks(kRows * kChosen), same(kRows * kChosen);
    std::vector<float> plain(kRows * kChosen), multiplied(kRows * kChosen);
    RouteParams params{.logits = logits.view(), .experts = picks.data(), .weights = plain.data()};
    params.rule = {.chosen = kChosen, .scores = scores, .normalised = true};
    ASSERT_TRUE(table().route(*MakeStream(table(), 2), params).ok());
    params.factors = factors.data();
    params.experts = same.data();
    params.weights = multiplied.data();
    ASSERT_TRUE(table().route(*MakeStream(table(), 2), params).ok());
    EXPECT_EQ(same, picks);
    for (size_t i = 0; i < picks.size(); ++i) {
      EXPECT_EQ(multiplied[i], plain[i] * factors[static_cast<size_t>(picks[i])]) << i;
    }
  }
}

TEST_P(ExpertsTest, EqualSigmoidScoresChooseTheFirst) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  TestMatrix logits(3, 8);
  for (int e = 0; e < 8; ++e) {
    logits.row(0)[e] = 100;
    logits.row(1)[e] = kNan;
    logits.row(2)[e] = e % 2 == 0 ? -kInfinity : kInfinity;
  }
  std::vector<int32_t> picks(9);
  std::vector<float> weights(9);
  RouteParams params{.logits = std::as_const(logits).view(), .experts = picks.data()};
  params.rule = {3, RoutingRule::Scores::kSigmoid, true, 4, 2, 1};
  params.weights = weights.data();
  ASSERT_TRUE(table().route(*MakeStream(table(), 2), params).ok());
  EXPECT_EQ(picks, (std::vector<int32_t>{0, 1, 2, 0, 1, 2, 0, 1, 3}));
  for (int i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(weights[i], 1.0f / 3);
  for (int i = 3; i < 6; ++i) EXPECT_EQ(weights[i], 0);
  EXPECT_EQ(weights[6], 0);
  EXPECT_FLOAT_EQ(weights[7], 0.5f);
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
    RouteParams params{.logits = std::as_const(logits).view(), .experts = picks.data()};
    params.rule = {.chosen = kChosen, .normalised = true};
    params.weights = weights.data();
    EXPECT_TRUE(ops.route(*MakeStream(ops, 2), params).ok());
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
