#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"
#include "tests/support/thinned.h"

namespace annulus::testing {
namespace {

struct Shape {
  int64_t rows;
  int64_t in;
  int64_t out;
  int64_t padding = 3;  // between rows of inputs
};

// Sizes that divide nothing evenly, and the edges of the tiles (6 or 16 rows, 16 and 64 columns, 96
// or 256 rows and 128, 256 or 512 depth per block).
const Shape kLinearShapes[] = {{1, 1, 1},     {1, 300, 77},   {2, 16, 16},    {3, 31, 65},
                               {5, 257, 15},  {6, 64, 64},    {7, 129, 129},  {13, 512, 1},
                               {96, 33, 100}, {97, 255, 63},  {101, 256, 17}, {193, 40, 128},
                               {4, 777, 81},  {17, 1100, 47}, {261, 70, 35}};

enum class Mode { kPlain, kBias, kAccumulate, kBoth };

// All of one product's operands.
struct LinearCase {
  LinearCase(const Shape& shape, uint32_t seed)
      : random(seed),
        input(shape.rows, shape.in, shape.padding),
        weight(shape.out, shape.in),
        bias(1, shape.out),
        initial(shape.rows, shape.out, 5) {
    input.FillNormal(random);
    weight.FillNormal(random);
    bias.FillNormal(random);
    initial.FillNormal(random);
  }

  TestMatrix Run(const OpTable& table, DType dtype, Mode mode, int threads) const {
    const PackedMatrix packed = Pack(table, weight, dtype);
    TestMatrix output = initial;
    LinearParams params;
    params.input = input.view();
    params.weight = &packed;
    params.bias = mode == Mode::kBias || mode == Mode::kBoth ? bias.row(0) : nullptr;
    params.accumulate = mode == Mode::kAccumulate || mode == Mode::kBoth;
    params.output = output.view();
    const auto stream = MakeStream(table, threads);
    EXPECT_TRUE(table.linear(*stream, params).ok());
    EXPECT_TRUE(output.PaddingUntouched());
    return output;
  }

  // sum_i x_i w_i rounds at every step by at most kUnit of a partial sum, which is at most the
  // product of the norms; bias and the old output add their own size. Weights come back within a
  // few units of theirs, which 2 covers.
  double Tolerance(int64_t r, int64_t o) const {
    const double norms = input.RowNorm(r) * weight.RowNorm(o);
    return 2 * Rounding(input.cols() + 2) *
           (norms + std::abs(bias.row(0)[o]) + std::abs(initial.row(r)[o]));
  }

  // Inputs that are rounded to bf16 change each product by at most 2^-9 of it, as good as
  // independently.
  double Bf16Tolerance(int64_t r, int64_t o) const {
    double squares = 0;
    for (int64_t i = 0; i < input.cols(); ++i) {
      const double product = double{input.row(r)[i]} * weight.row(o)[i];
      squares += product * product;
    }
    return Tolerance(r, o) + kLambda * 0x1p-9 * std::sqrt(squares);
  }

  // Inputs in fixed point are off by up to half a 32512th of the largest of their group.
  double FixedTolerance(int64_t r, int64_t o, int64_t group) const {
    double squares = 0;
    for (int64_t begin = 0; begin < input.cols(); begin += group) {
      const int64_t end = std::min(begin + group, input.cols());
      double largest = 0;
      double weights = 0;
      for (int64_t i = begin; i < end; ++i) {
        largest = std::max(largest, std::abs(double{input.row(r)[i]}));
        weights += double{weight.row(o)[i]} * weight.row(o)[i];
      }
      squares += largest * largest * weights;
    }
    return Tolerance(r, o) + kLambda * std::sqrt(squares) / 65024;
  }

  // Makes the inputs numbers of bf16, which no table rounds.
  void RoundInputs() {
    for (int64_t r = 0; r < input.rows(); ++r) {
      for (int64_t i = 0; i < input.cols(); ++i) {
        input.row(r)[i] = ToFloat(ToBFloat16(input.row(r)[i]));
      }
    }
  }

  std::mt19937 random;
  TestMatrix input;
  TestMatrix weight;
  TestMatrix bias;
  TestMatrix initial;
};

// As kernels/ops/linear.h says.
bool RoundsInputs(const OpTable& table, DType dtype) {
  return MultipliesBf16(table) && dtype != DType::kF32 && dtype != DType::kF16;
}
// How many inputs share a scale in fixed point; 0: they are not in fixed point.
int64_t FixedGroupOf(const OpTable& table, DType dtype) {
  if (table.name != "cpu/avx512-bf16") return 0;
  return dtype == DType::kI8 ? 64 : QuantizedGroup(dtype);
}

using LinearTest = EveryTable;

TEST_P(LinearTest, MatchesTheReference) {
  uint32_t seed = 1;
  for (const Shape& shape : kLinearShapes) {
    for (const DType dtype : WeightDTypesOf(table())) {
      const Mode mode = static_cast<Mode>(seed % 4);
      SCOPED_TRACE(::testing::Message()
                   << "seed " << seed << " rows " << shape.rows << " in " << shape.in << " out "
                   << shape.out << " " << DTypeName(dtype) << " mode " << seed % 4);
      LinearCase test(shape, seed++);
      // Every second case has inputs that are bf16 already: then nothing but sums may differ.
      const bool rounded = RoundsInputs(table(), dtype) && seed % 2 == 0;
      if (seed % 2 == 1) test.RoundInputs();
      const TestMatrix expected = test.Run(Reference(), dtype, mode, 1);
      const TestMatrix actual = test.Run(table(), dtype, mode, 2);
      const int64_t fixed_group = FixedGroupOf(table(), dtype);
      for (int64_t r = 0; r < shape.rows; ++r) {
        for (int64_t o = 0; o < shape.out; ++o) {
          double tolerance = rounded ? test.Bf16Tolerance(r, o) : test.Tolerance(r, o);
          if (fixed_group > 0) tolerance = test.FixedTolerance(r, o, fixed_group);
          ASSERT_NEAR(actual.row(r)[o], expected.row(r)[o], tolerance) << r << " " << o;
        }
      }
    }
  }
}

// As GGUF's rows are: whole groups of 32, few or one column, batches of every size about the tiles.
TEST_P(LinearTest, GroupsOfFilesMatchTheReferenceInEveryBatch) {
  uint32_t seed = 1000;
  for (const DType dtype : FileDTypesOf(table())) {
    for (const int64_t in : {32, 96, 576}) {
      for (const int64_t out : {1, 49}) {
        for (int64_t rows = 1; rows <= 17; ++rows) {
          SCOPED_TRACE(::testing::Message() << "seed " << seed << " rows " << rows << " in " << in
                                            << " out " << out << " " << DTypeName(dtype));
          LinearCase test({rows, in, out}, seed++);
          test.RoundInputs();
          const TestMatrix expected = test.Run(Reference(), dtype, Mode::kPlain, 1);
          const TestMatrix actual = test.Run(table(), dtype, Mode::kPlain, 2);
          const int64_t fixed_group = FixedGroupOf(table(), dtype);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t o = 0; o < out; ++o) {
              const double tolerance =
                  fixed_group > 0 ? test.FixedTolerance(r, o, fixed_group) : test.Tolerance(r, o);
              ASSERT_NEAR(actual.row(r)[o], expected.row(r)[o], tolerance) << r << " " << o;
            }
          }
        }
      }
    }
  }
}

// The reference itself against float64.
TEST(LinearReferenceTest, MatchesFloat64) {
  const LinearCase test({5, 333, 21}, 99);
  const TestMatrix actual = test.Run(Reference(), DType::kF32, Mode::kBoth, 1);
  for (int64_t r = 0; r < 5; ++r) {
    for (int64_t o = 0; o < 21; ++o) {
      double expected = double{test.bias.row(0)[o]} + test.initial.row(r)[o];
      for (int64_t i = 0; i < 333; ++i) {
        expected += double{test.input.row(r)[i]} * test.weight.row(o)[i];
      }
      ASSERT_NEAR(actual.row(r)[o], expected, test.Tolerance(r, o)) << r << " " << o;
    }
  }
}

// `whole`: the product of all rows. Rows multiplied `step` at a time have the same bits.
void ExpectBitsByStep(const OpTable& table, const LinearCase& test, const PackedMatrix& packed,
                      int64_t step, const TestMatrix& whole) {
  const auto stream = MakeStream(table, 2);
  TestMatrix output = test.initial;
  for (int64_t begin = 0; begin < whole.rows(); begin += step) {
    const int64_t count = std::min(step, whole.rows() - begin);
    LinearParams params;
    params.input = test.input.view().row_range(begin, count);
    params.weight = &packed;
    params.bias = test.bias.row(0);
    params.accumulate = true;
    params.output = output.view().row_range(begin, count);
    ASSERT_TRUE(table.linear(*stream, params).ok());
  }
  ASSERT_TRUE(stream->Synchronize().ok());
  for (int64_t r = 0; r < whole.rows(); ++r) {
    ASSERT_TRUE(SameBits(whole.row(r), output.row(r), whole.cols()))
        << "step " << step << " row " << r;
  }
}

TEST_P(LinearTest, ARowsBitsDependOnNeitherTheOtherRowsNorTheThreads) {
  for (const DType dtype : WeightDTypesOf(table())) {
    SCOPED_TRACE(DTypeName(dtype));
    const int64_t rows = 103;
    const int64_t in = IsEmulated(table()) ? 71 : 523;
    const int64_t out = IsEmulated(table()) ? 37 : 150;
    const LinearCase test({rows, in, out}, 5);
    const TestMatrix whole = test.Run(table(), dtype, Mode::kBoth, 1);
    for (const int threads : {2, 3, 7}) {
      const TestMatrix again = test.Run(table(), dtype, Mode::kBoth, threads);
      for (int64_t r = 0; r < rows; ++r) ASSERT_TRUE(SameBits(whole.row(r), again.row(r), out));
    }
    const PackedMatrix packed = Pack(table(), test.weight, dtype);
    const std::vector<int64_t> steps = {1, 2, 3, 4, 5, 6, 7, 16, 17, 33, 50, 96, 100};
    for (const int64_t step : ThinnedIfSanitized(steps, 5)) {
      if (IsEmulated(table()) && step != 1 && step != 33 && step != 100) continue;
      ExpectBitsByStep(table(), test, packed, step, whole);
    }
  }
}

// GPUs load the inputs of 9 to 16 rows in their own way: four at a time if all rows start at
// multiples of 16 bytes and have a multiple of 4 columns, else one at a time. 300 outputs are more
// than the blocks of an emulated GPU take at once.
TEST_P(LinearTest, RowsHaveTheSameBitsInBatchesOfNineToSixteen) {
  const std::vector<Shape> shapes = {
      {19, 68, 300, 0}, {19, 1028, 37, 0}, {19, 45, 5, 3}, {19, 611, 70, 2}};
  const std::vector<int64_t> steps = {9, 10, 11, 12, 13, 14, 15, 16};
  for (const Shape& shape : ThinnedIfSanitized(shapes, 2)) {
    const LinearCase test(shape, 17);
    for (const DType dtype : WeightDTypesOf(table())) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(dtype) << " in " << shape.in << " out " << shape.out);
      const TestMatrix whole = test.Run(table(), dtype, Mode::kBoth, 2);
      const PackedMatrix packed = Pack(table(), test.weight, dtype);
      for (const int64_t step : ThinnedIfSanitized(steps, 3)) {
        ExpectBitsByStep(table(), test, packed, step, whole);
      }
    }
  }
}

// Products of the same input, some of its first rows only, by weights of one type or of two; few
// rows, or `times` as many.
struct ProductsCase {
  struct Part {
    int64_t rows;
    int64_t out;
    bool accumulate;
  };
  static constexpr Part kParts[] = {
      {5, 130, false}, {5, 17, true}, {2, 1000, false}, {0, 64, true}};
  static constexpr size_t kCount = std::size(kParts);

  ProductsCase(const OpTable& table, uint32_t seed, int64_t times, DType dtype, DType other)
      : times(times), input(5 * times, 96, 2) {
    std::mt19937 random(seed);
    input.FillNormal(random);
    for (const Part& part : kParts) {
      TestMatrix weight(part.out, input.cols());
      weight.FillNormal(random);
      weights.push_back(Pack(table, weight, weights.size() == 1 ? other : dtype));
      initial.emplace_back(5 * times, part.out, 3).FillNormal(random);
    }
  }

  std::vector<LinearParams> To(std::vector<TestMatrix>& outputs) const {
    std::vector<LinearParams> params(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      params[i].input = input.view().row_range(0, times * kParts[i].rows);
      params[i].weight = &weights[i];
      params[i].output = outputs[i].view().row_range(0, times * kParts[i].rows);
      params[i].accumulate = kParts[i].accumulate;
    }
    return params;
  }

  int64_t times;
  TestMatrix input;
  std::vector<PackedMatrix> weights;
  std::vector<TestMatrix> initial;
};

void ExpectBitsOfEachAlone(const OpTable& table, const ProductsCase& test) {
  const auto stream = MakeStream(table, 2);
  std::vector<TestMatrix> together = test.initial;
  std::vector<TestMatrix> alone = test.initial;
  ASSERT_TRUE(Linears(table, *stream, test.To(together)).ok());
  for (const LinearParams& part : test.To(alone)) {
    ASSERT_TRUE(table.linear(*stream, part).ok());
  }
  for (size_t i = 0; i < ProductsCase::kCount; ++i) {
    for (int64_t r = 0; r < test.input.rows(); ++r) {
      const int64_t columns = test.initial[i].cols();
      EXPECT_TRUE(SameBits(together[i].row(r), alone[i].row(r), columns))
          << "part " << i << " row " << r;
    }
    EXPECT_TRUE(together[i].PaddingUntouched());
  }
}

TEST_P(LinearTest, ProductsOfOneInputHaveTheBitsOfEachAlone) {
  uint32_t seed = 1;
  for (const DType dtype : WeightDTypesOf(table())) {
    for (const DType other : {dtype, DType::kF32}) {
      for (const int64_t times : {1, 5}) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << DTypeName(dtype)
                                          << " beside " << DTypeName(other) << " x " << times);
        ExpectBitsOfEachAlone(table(), ProductsCase(table(), seed++, times, dtype, other));
      }
    }
  }
}

// Ranks of one device are threads of one process. On a GPU the two products want different shared
// memory of one kernel, as they have 4 tiles of outputs a block and 1.
TEST_P(LinearTest, ThreadsMultiplyBesideEachOther) {
  const LinearCase cases[2] = {{{3, 64, 4300}, 11}, {{3, 64, 40}, 12}};
  std::vector<std::thread> threads;
  for (const LinearCase& own : cases) {
    threads.emplace_back([&] {
      const TestMatrix alone = own.Run(Reference(), DType::kBF16, Mode::kPlain, 1);
      for (int round = 0; round < 4; ++round) {
        const TestMatrix output = own.Run(*GetParam(), DType::kBF16, Mode::kPlain, 1);
        for (int64_t o = 0; o < output.cols(); ++o) {
          ASSERT_NEAR(output.row(0)[o], alone.row(0)[o], own.Bf16Tolerance(0, o)) << "output " << o;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(LinearTest, NoRowsAreNoWork) {
  const LinearCase test({1, 20, 30}, 3);
  const PackedMatrix packed = Pack(table(), test.weight, DType::kF32);
  LinearParams params;
  params.input = test.input.view().row_range(0, 0);
  params.weight = &packed;
  params.output = TestMatrix(1, 30).view().row_range(0, 0);
  EXPECT_TRUE(table().linear(*MakeStream(table(), 2), params).ok());
}

TEST_P(LinearTest, EmbedGathersRowsExactly) {
  std::mt19937 random(11);
  for (const int64_t hidden : {1, 8, 255, 256, 257, 600}) {
    for (const DType dtype : WeightDTypesOf(table())) {
      SCOPED_TRACE(::testing::Message() << "hidden " << hidden << " " << DTypeName(dtype));
      const int64_t vocabulary = 37;
      TestMatrix weight(vocabulary, hidden);
      weight.FillNormal(random);
      const PackedMatrix packed = Pack(table(), weight, dtype);
      std::vector<int32_t> ids(200);
      for (int32_t& id : ids) id = random() % vocabulary;
      TestMatrix output(ids.size(), hidden, 2);
      ASSERT_TRUE(table().embed(*MakeStream(table(), 3), {&packed, ids, output.view()}).ok());
      for (size_t r = 0; r < ids.size(); ++r) {
        const std::vector<float> expected = Stored(dtype, weight.row(ids[r]), hidden);
        ASSERT_TRUE(SameBits(output.row(r), expected.data(), hidden)) << "row " << r;
      }
      EXPECT_TRUE(output.PaddingUntouched());
    }
  }
}

TEST_P(LinearTest, PackConvertsBetweenAllStorageTypes) {
  std::mt19937 random(13);
  TestMatrix weight(19, 270);
  weight.FillNormal(random);
  std::vector<int32_t> ids(19);
  for (int i = 0; i < 19; ++i) ids[i] = i;
  for (const DType from : kCpuDTypes) {
    std::vector<std::byte> stored(19 * 270 * DTypeSize(from));
    ConvertFromFloat(from, weight.row(0), stored.data(), 19 * 270);
    for (const DType to : kCpuDTypes) {
      SCOPED_TRACE(::testing::Message() << DTypeName(from) << " to " << DTypeName(to));
      const absl::StatusOr<PackedMatrix> packed =
          PackMatrix(table(), BackendOf(table()), {stored.data(), from, 19, 270}, to);
      ASSERT_TRUE(packed.ok()) << packed.status();
      EXPECT_EQ(packed->out_features, 19);
      EXPECT_EQ(packed->in_features, 270);
      EXPECT_EQ(packed->dtype, to);
      TestMatrix output(19, 270);
      ASSERT_TRUE(table().embed(*MakeStream(table(), 1), {&*packed, ids, output.view()}).ok());
      std::vector<float> expected(19 * 270);
      std::vector<std::byte> narrow(expected.size() * DTypeSize(to));
      ConvertToFloat(from, stored.data(), expected.data(), expected.size());
      ConvertFromFloat(to, expected.data(), narrow.data(), expected.size());
      ConvertToFloat(to, narrow.data(), expected.data(), expected.size());
      EXPECT_TRUE(SameBits(output.row(0), expected.data(), expected.size()));
    }
  }
}

// Rows that were quantised ahead give the same bits as quantising while packing, in any order.
TEST_P(LinearTest, PacksStoredCodesBlockByBlock) {
  std::mt19937 random(17);
  TestMatrix weight(53, 137);
  weight.FillNormal(random);
  std::vector<int32_t> ids(53);
  for (int i = 0; i < 53; ++i) ids[i] = i;
  for (const DType dtype : WeightDTypesOf(table())) {
    if (!IsQuantized(dtype)) continue;
    SCOPED_TRACE(DTypeName(dtype));
    const size_t row_bytes = QuantizedRowBytes(dtype, 137);
    const size_t scale_bytes = QuantizedScaleBytes(dtype, 137);
    std::vector<std::byte> codes(53 * row_bytes);
    std::vector<std::byte> scales(53 * scale_bytes);
    for (int r = 0; r < 53; ++r) {
      ASSERT_TRUE(QuantizeRow(dtype, {weight.row(r), 137}, codes.data() + r * row_bytes,
                              scales.data() + r * scale_bytes, nullptr)
                      .ok());
    }
    absl::StatusOr<PackedMatrix> blocks = CreateMatrix(table(), BackendOf(table()), 53, 137, dtype);
    ASSERT_TRUE(blocks.ok()) << blocks.status();
    for (const int64_t first : {32, 0, 48, 16}) {
      const int64_t rows = std::min<int64_t>(16, 53 - first);
      ASSERT_TRUE(table()
                      .pack_rows(*blocks, first,
                                 {codes.data() + first * row_bytes, dtype, rows, 137,
                                  scales.data() + first * scale_bytes},
                                 nullptr)
                      .ok());
    }
    const PackedMatrix whole = Pack(table(), weight, dtype);
    TestMatrix from_blocks(53, 137);
    TestMatrix from_whole(53, 137);
    ASSERT_TRUE(table().embed(*MakeStream(table(), 1), {&*blocks, ids, from_blocks.view()}).ok());
    ASSERT_TRUE(table().embed(*MakeStream(table(), 1), {&whole, ids, from_whole.view()}).ok());
    EXPECT_TRUE(SameBits(from_blocks.row(0), from_whole.row(0), 53 * 137));
  }
}

TEST_P(LinearTest, PackRefusesImpossibleMatrices) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const std::pair<int64_t, int64_t> impossible[] = {{0, 1},    {1, 0},    {-1, 5},
                                                    {huge, 1}, {1, huge}, {1ll << 33, 1ll << 33}};
  for (const DType dtype : WeightDTypesOf(table())) {
    for (const auto& [rows, cols] : impossible) {
      EXPECT_EQ(table().matrix_bytes(rows, cols, dtype).status().code(),
                absl::StatusCode::kInvalidArgument)
          << rows << " x " << cols << " " << DTypeName(dtype);
    }
    // Possible in principle, but not in this machine's memory.
    EXPECT_EQ(
        CreateMatrix(table(), BackendOf(table()), 1ll << 25, 1ll << 30, dtype).status().code(),
        absl::StatusCode::kResourceExhausted);
  }
}

TEST_P(LinearTest, QuantisingRefusesWeightsThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> weight(40 * 20, 1.0f);
    weight[555] = bad;
    for (const DType dtype : WeightDTypesOf(table())) {
      const auto packed =
          PackMatrix(table(), BackendOf(table()), {weight.data(), DType::kF32, 40, 20}, dtype);
      EXPECT_EQ(packed.ok(), !IsQuantized(dtype)) << DTypeName(dtype);
    }
  }
}

ANNULUS_FOR_EVERY_TABLE(LinearTest);

}  // namespace
}  // namespace annulus::testing
