#include "kernels/base/quantize.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr DType kQuantized[] = {DType::kI8,    DType::kF8E4M3, DType::kF8E5M2, DType::kI4G32,
                                DType::kI4G64, DType::kQ8_0,   DType::kQ4_0,   DType::kQ4_1};

struct Row {
  Row(DType dtype, int64_t cols)
      : codes(QuantizedRowBytes(dtype, cols)), scales(QuantizedScaleBytes(dtype, cols)) {}
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
};

std::vector<float> Back(DType dtype, const Row& row, int64_t cols) {
  std::vector<float> values(cols);
  DequantizeRow(dtype, row.codes.data(), row.scales.data(), values);
  return values;
}

// The largest distance of a weight from its stored value, by the definition of the format: half a
// step of the scale, and for fp8 half a unit in the last place of the weight itself.
double Bound(DType dtype, double weight, double largest) {
  switch (dtype) {
    case DType::kI8:
      return largest / 127 / 2;
    case DType::kF8E4M3:
      return std::max(std::abs(weight) * 0x1p-4, largest / 448 * 0x1p-10);
    case DType::kF8E5M2:
      return std::max(std::abs(weight) * 0x1p-3, largest / 57344 * 0x1p-17);
    case DType::kQ8_0:  // the scale is rounded to 11 bits
      return largest / 127 / 2 + largest * 0x1p-11 + 0x1p-25 * 127;
    case DType::kQ4_1:  // and the minimum: up to half a step less and 15 times the scale's error
      return largest / 15 + 4 * largest * 0x1p-11;
    default:
      // The opposite of the extreme weight may be cut off at 7 of 8 steps; the scale is rounded.
      return largest / 8 * (1 + 0x1p-8) + largest * 0x1p-8;
  }
}

TEST(QuantizeTest, WeightsComeBackWithinTheStepOfTheFormat) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.02f);
  for (const DType dtype : kQuantized) {
    for (const int64_t cols : {1, 2, 31, 33, 64, 129, 1000}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << cols);
      std::vector<float> weights(cols);
      float largest = 0;
      for (float& w : weights) {
        w = normal(random);
        largest = std::max(largest, std::abs(w));
      }
      Row row(dtype, cols);
      QuantizationError error;
      ASSERT_TRUE(QuantizeRow(dtype, weights, row.codes.data(), row.scales.data(), &error).ok());
      EXPECT_TRUE(CheckQuantizedRow(dtype, row.codes.data(), row.scales.data(), cols).ok());
      const std::vector<float> back = Back(dtype, row, cols);
      double difference = 0;
      double squares = 0;
      for (int64_t i = 0; i < cols; ++i) {
        ASSERT_LE(std::abs(back[i] - weights[i]), Bound(dtype, weights[i], largest) * (1 + 1e-5))
            << i;
        difference += std::pow(double{back[i]} - weights[i], 2);
        squares += std::pow(double{weights[i]}, 2);
      }
      EXPECT_DOUBLE_EQ(error.relative(), std::sqrt(difference / squares));
    }
  }
}

// What the formats cost on normal weights: int8 with 127 steps below about 3.5 deviations has steps
// of 0.028, and 0.028 / sqrt(12) = 0.8%; fp8 has 4 or 3 bits; int4 has steps of about 0.25 to 0.3.
TEST(QuantizeTest, ErrorsAreThoseOfTheNumberOfBits) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> weights(4096);
  for (float& w : weights) w = normal(random);
  const double most[] = {0.012, 0.03, 0.06, 0.1, 0.11, 0.007, 0.1, 0.09};
  const double least[] = {0.006, 0.02, 0.04, 0.06, 0.06, 0.003, 0.06, 0.05};
  for (int i = 0; i < 8; ++i) {
    Row row(kQuantized[i], 4096);
    QuantizationError error;
    ASSERT_TRUE(
        QuantizeRow(kQuantized[i], weights, row.codes.data(), row.scales.data(), &error).ok());
    EXPECT_LT(error.relative(), most[i]) << DTypeName(kQuantized[i]);
    EXPECT_GT(error.relative(), least[i]) << DTypeName(kQuantized[i]);
  }
}

TEST(QuantizeTest, ZerosAndTinyWeightsStayFinite) {
  for (const DType dtype : kQuantized) {
    for (const float size : {0.0f, 1e-45f, 1e-40f, 1e-38f, 1e38f}) {
      // Scales of files' types are halves; what they cannot hold is refused below.
      if (size > 1 && dtype >= DType::kQ8_0) continue;
      const std::vector<float> weights(70, -size);
      Row row(dtype, 70);
      ASSERT_TRUE(QuantizeRow(dtype, weights, row.codes.data(), row.scales.data(), nullptr).ok());
      for (const float back : Back(dtype, row, 70)) {
        ASSERT_TRUE(std::isfinite(back)) << DTypeName(dtype) << " " << size;
        ASSERT_LE(std::abs(back + size), size) << DTypeName(dtype) << " " << size;
      }
    }
  }
}

TEST(QuantizeTest, RefusesWhatIsNotFinite) {
  for (const DType dtype : kQuantized) {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::nanf("")}) {
      std::vector<float> weights(40, 1);
      weights[37] = bad;
      Row row(dtype, 40);
      EXPECT_EQ(QuantizeRow(dtype, weights, row.codes.data(), row.scales.data(), nullptr).code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
  const uint8_t bad_codes[][2] = {{static_cast<uint8_t>(DType::kI8), 0x80},
                                  {static_cast<uint8_t>(DType::kF8E4M3), 0xff},
                                  {static_cast<uint8_t>(DType::kF8E5M2), 0x7c}};
  for (const auto& [dtype, code] : bad_codes) {
    Row row(static_cast<DType>(dtype), 9);
    EXPECT_TRUE(
        CheckQuantizedRow(static_cast<DType>(dtype), row.codes.data(), row.scales.data(), 9).ok());
    row.codes[8] = std::byte{code};
    EXPECT_FALSE(
        CheckQuantizedRow(static_cast<DType>(dtype), row.codes.data(), row.scales.data(), 9).ok());
  }
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    SCOPED_TRACE(DTypeName(dtype));
    for (const float large : {9e6f, -9e6f, 1e38f}) {
      std::vector<float> weights(33, 1);
      weights[32] = large;
      Row own(dtype, 33);
      EXPECT_EQ(QuantizeRow(dtype, weights, own.codes.data(), own.scales.data(), nullptr).code(),
                absl::StatusCode::kInvalidArgument);
    }
    Row own(dtype, 64);
    EXPECT_TRUE(CheckQuantizedRow(dtype, own.codes.data(), own.scales.data(), 64).ok());
    own.codes[7] = std::byte{0x80};
    EXPECT_TRUE(CheckQuantizedRow(dtype, own.codes.data(), own.scales.data(), 64).ok());
    own.scales.back() = std::byte{0xfc};
    EXPECT_FALSE(CheckQuantizedRow(dtype, own.codes.data(), own.scales.data(), 64).ok());
  }
  Row row(DType::kI4G32, 65);
  row.scales[5] = std::byte{0x7f};
  row.scales[4] = std::byte{0x80};
  EXPECT_FALSE(CheckQuantizedRow(DType::kI4G32, row.codes.data(), row.scales.data(), 65).ok());
}

}  // namespace
}  // namespace annulus
