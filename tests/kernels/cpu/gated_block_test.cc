// A gated block as one op has the bits of its separate ops.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <ostream>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"
#include "tests/support/thinned.h"

namespace annulus::testing {
namespace {

struct BlockShape {
  int64_t rows;
  int64_t hidden;
  int64_t intermediate;
  int64_t out;
};

struct Setting {
  DType first = DType::kBF16;  // of gate
  DType up = DType::kBF16;
  DType down = DType::kBF16;
  Activations asked = Activations::kFloat;  // where the weights have them
  Activation activation = Activation::kSilu;
  bool biases = false;
  bool accumulate = false;
  int64_t padding = 0;  // between rows of all matrices
  int threads = 1;
};

std::ostream& operator<<(std::ostream& out, const BlockShape& shape) {
  return out << shape.rows << " x " << shape.hidden << " to " << shape.intermediate << " to "
             << shape.out;
}

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << DTypeName(setting.first) << ", " << DTypeName(setting.up) << ", "
             << DTypeName(setting.down) << ", activations " << ActivationsName(setting.asked)
             << ", activation " << static_cast<int>(setting.activation) << ", biases "
             << setting.biases << ", accumulate " << setting.accumulate << ", padding "
             << setting.padding << ", " << setting.threads << " threads";
}

// All operands of a block, for one table.
class BlockCase {
 public:
  BlockCase(const OpTable& table, const BlockShape& shape, const Setting& setting, uint32_t seed)
      : table_(table),
        shape_(shape),
        setting_(setting),
        random_(seed),
        input_(shape.rows, shape.hidden, setting.padding),
        initial_(shape.rows, shape.out, setting.padding) {
    input_.FillNormal(random_);
    initial_.FillNormal(random_);
    SetOddRows();
    Add(setting.first, shape.intermediate, shape.hidden);
    Add(setting.up, shape.intermediate, shape.hidden);
    Add(setting.down, shape.out, shape.intermediate);
  }

  void ExpectSameBits() const {
    const TestMatrix expected = Run(/*together=*/false);
    const TestMatrix actual = Run(/*together=*/true);
    for (int64_t r = 0; r < shape_.rows; ++r) {
      ASSERT_TRUE(SameBits(expected.row(r), actual.row(r), shape_.out)) << "row " << r;
    }
  }

 private:
  // Rows whose values become subnormal, infinite and NaN on the way.
  void SetOddRows() {
    if (shape_.rows < 5) return;
    for (int64_t i = 0; i < shape_.hidden; ++i) {
      input_.row(1)[i] *= 0x1p-66f;
      input_.row(2)[i] *= 0x1p66f;
    }
    input_.row(3)[0] = std::numeric_limits<float>::quiet_NaN();
  }

  void Add(DType dtype, int64_t out, int64_t in) {
    TestMatrix weight(out, in);
    weight.FillNormal(random_, 1 / std::sqrt(static_cast<float>(in)));
    weights_.push_back(Pack(table_, weight, dtype));
    biases_.emplace_back(1, out).FillNormal(random_);
  }

  // Product `i`: of gate, up and down.
  LinearParams ProductOf(size_t i, ConstMatrixView input, MatrixView output) const {
    LinearParams params;
    params.input = input;
    params.weight = &weights_[i];
    params.bias = setting_.biases ? biases_[i].row(0) : nullptr;
    params.output = output;
    params.activations = ActivationsOf(setting_.asked, weights_[i].dtype);
    return params;
  }

  TestMatrix Run(bool together) const {
    TestMatrix output = initial_;
    TestMatrix gate(shape_.rows, shape_.intermediate, setting_.padding);
    TestMatrix up(shape_.rows, shape_.intermediate, setting_.padding);
    const std::array<LinearParams, 2> products = {ProductOf(0, input_.view(), gate.view()),
                                                  ProductOf(1, input_.view(), up.view())};
    const bool alone = setting_.activation == Activation::kGeluTanhAlone;
    GatedBlockParams params;
    params.products = std::span(products).first(alone ? 1 : 2);
    params.activation = setting_.activation;
    params.alpha = 1.702f;
    params.limit = 1.5f;
    params.down = ProductOf(2, gate.view(), output.view());
    params.down.accumulate = setting_.accumulate;
    const auto stream = MakeStream(table_, setting_.threads);
    if (together) {
      EXPECT_TRUE(table_.gated_block(*stream, params).ok());
    } else {
      EXPECT_TRUE(Linears(table_, *stream, params.products).ok());
      EXPECT_TRUE(table_.gated_mul(*stream, params.gated_mul()).ok());
      EXPECT_TRUE(table_.linear(*stream, params.down).ok());
    }
    for (const TestMatrix* matrix : {&gate, &up, &output}) {
      EXPECT_TRUE(matrix->PaddingUntouched());
    }
    return output;
  }

  const OpTable& table_;
  const BlockShape shape_;
  const Setting setting_;
  std::mt19937 random_;
  TestMatrix input_;
  TestMatrix initial_;
  std::vector<PackedMatrix> weights_;  // gate, up and down
  std::vector<TestMatrix> biases_;
};

class GatedBlockTest : public EveryTable {
 protected:
  void SetUp() override {
    if (table().gated_block == nullptr) GTEST_SKIP() << table().name << " has no such op";
  }

  void ExpectSameBits(const BlockShape& shape, const Setting& setting, uint32_t seed) const {
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ": " << shape << "; " << setting);
    BlockCase(table(), shape, setting, seed).ExpectSameBits();
  }
};

int64_t Between(std::mt19937& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

// Every second case has no padding: then activated rows may lie packed in the gate's memory.
Setting RandomSetting(std::mt19937& random, DType dtype) {
  Setting setting;
  setting.first = setting.up = setting.down = dtype;
  setting.asked = kAllActivations[random() % std::size(kAllActivations)];
  setting.activation = static_cast<Activation>(random() % kActivations);
  setting.biases = random() % 2 == 0;
  setting.accumulate = random() % 2 == 0;
  setting.padding = random() % 2 == 0 ? 0 : Between(random, 1, 20);
  setting.threads = static_cast<int>(Between(random, 1, 3));
  return setting;
}

TEST_P(GatedBlockTest, HasTheBitsOfItsOpsInRandomShapes) {
  for (const DType dtype : WeightDTypesOf(table())) {
    for (const uint32_t seed : ThinnedIfSanitized(SeedsFrom(1, 8), 1)) {
      std::mt19937 random(static_cast<uint32_t>(TestSeed()) * 1000 + seed);
      const BlockShape shape = {Between(random, 1, 600), Between(random, 1, 300),
                                Between(random, 1, 700), Between(random, 1, 200)};
      ExpectSameBits(shape, RandomSetting(random, dtype), seed);
    }
  }
}

// The edges of tasks (96 or 256 rows, 64 to 256 columns), of a table's own least and of the place
// for packed rows.
TEST_P(GatedBlockTest, HasTheBitsOfItsOpsAtTheEdges) {
  uint32_t seed = 100;
  const std::vector<int64_t> rows = {1, 16, 63, 64, 65, 96, 97, 256, 257, 512, 600};
  const std::vector<int64_t> intermediates = {1, 32, 48, 63, 64, 65, 128, 129, 256, 320};
  for (const int64_t count : ThinnedIfSanitized(rows, 3)) {
    for (const int64_t intermediate : ThinnedIfSanitized(intermediates, 3)) {
      std::mt19937 random(seed);
      Setting setting = RandomSetting(random, DType::kBF16);
      if (seed % 3 != 0) setting.padding = 0;
      ExpectSameBits({count, 96, intermediate, 40}, setting, seed++);
    }
  }
}

// More than one turn of packed rows (4 MiB), of the block's input and of `down`'s.
TEST_P(GatedBlockTest, HasTheBitsOfItsOpsInSeveralTurns) {
  uint32_t seed = 300;
  for (const DType dtype : {DType::kBF16, DType::kI8, DType::kQ4_1}) {
    for (const BlockShape& shape : {BlockShape{600, 4500, 70, 33}, BlockShape{600, 40, 4500, 33}}) {
      Setting setting;
      setting.first = setting.up = setting.down = dtype;
      setting.threads = 2;
      setting.accumulate = true;
      ExpectSameBits(shape, setting, seed++);
    }
  }
}

// Weights of several dtypes, as files of mixed precision have them, with and without kernels of dot
// products.
TEST_P(GatedBlockTest, WeightsMayDiffer) {
  uint32_t seed = 400;
  const std::array<DType, 5> dtypes = {DType::kBF16, DType::kF32, DType::kF16, DType::kI8,
                                       DType::kQ4_1};
  for (const DType first : dtypes) {
    for (const DType down : dtypes) {
      std::mt19937 random(seed);
      Setting setting = RandomSetting(random, first);
      setting.down = down;
      if (seed % 2 == 0) setting.up = down;
      setting.padding = 0;
      ExpectSameBits({150, 90, 200, 70}, setting, seed++);
    }
  }
}

TEST_P(GatedBlockTest, NoRowsAreNoWork) { ExpectSameBits({0, 20, 30, 10}, {}, 500); }

// What the op is for: of the values in between, only those that `down` reads get to memory, as bf16
// if it reads bf16. That takes half of the gate's memory.
TEST_P(GatedBlockTest, UpStaysInTheCache) {
  constexpr int64_t kRows = 130;
  std::mt19937 random(7);
  TestMatrix input(kRows, 64);
  input.FillNormal(random);
  TestMatrix first(200, 64), second(200, 64), last(50, 200);
  for (TestMatrix* weight : {&first, &second, &last}) weight->FillNormal(random, 0.1f);
  for (const DType dtype : {DType::kBF16, DType::kI8}) {
    const PackedMatrix gate_weight = Pack(table(), first, dtype);
    const PackedMatrix up_weight = Pack(table(), second, dtype);
    const PackedMatrix down_weight = Pack(table(), last, dtype);
    TestMatrix gate(kRows, 200), up(kRows, 200), output(kRows, 50);
    const std::array<LinearParams, 2> products = {
        LinearParams{.input = input.view(), .weight = &gate_weight, .output = gate.view()},
        LinearParams{.input = input.view(), .weight = &up_weight, .output = up.view()}};
    GatedBlockParams params;
    params.products = products;
    params.down = {.input = gate.view(), .weight = &down_weight, .output = output.view()};
    ASSERT_TRUE(table().gated_block(*MakeStream(table(), 2), params).ok());
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < 200; ++i) ASSERT_TRUE(std::isnan(up.row(r)[i])) << r << " " << i;
    }
    if (dtype == DType::kBF16) {
      EXPECT_TRUE(std::isnan(gate.row(kRows - 1)[199]));
    }
  }
}

ANNULUS_FOR_EVERY_TABLE(GatedBlockTest);

}  // namespace
}  // namespace annulus::testing
