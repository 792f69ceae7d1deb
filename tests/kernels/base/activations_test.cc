#include "kernels/base/activations.h"

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Activations, NamesGoThereAndBack) {
  for (const Activations activations : kAllActivations) {
    EXPECT_EQ(ParseActivations(ActivationsName(activations)).value(), activations);
    // A dtype of the weights has the same name, so a message can ask for it.
    const std::span<const DType> weights = WeightsFor(activations);
    EXPECT_TRUE(weights.empty() || DTypeName(weights[0]) == ActivationsName(activations));
    for (const DType dtype : weights) EXPECT_EQ(ActivationsOf(activations, dtype), activations);
  }
  EXPECT_TRUE(WeightsFor(Activations::kFloat).empty());
  EXPECT_EQ(ActivationsOf(Activations::kFp8, DType::kF8E4M3), Activations::kFp8);
  EXPECT_EQ(ActivationsOf(Activations::kFp8, DType::kBF16), Activations::kFloat);
  for (const DType dtype :
       {DType::kI8, DType::kI4G32, DType::kI4G64, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    EXPECT_EQ(ActivationsOf(Activations::kInt8, dtype), Activations::kInt8);
  }
  EXPECT_EQ(ActivationsOf(Activations::kInt8, DType::kF8E4M3), Activations::kFloat);
  EXPECT_EQ(ActivationsOf(Activations::kInt8, DType::kF16), Activations::kFloat);
  EXPECT_EQ(ActivationsOf(Activations::kFloat, DType::kI4G64), Activations::kFloat);
  const absl::Status unknown = ParseActivations("fp8").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), AllOf(HasSubstr("'fp8'"), HasSubstr("fp8_e4m3")));
}

TEST(Activations, RowsOfFloat8ReachTheLargestCode) {
  // 17 and 19 lie half way between 16, 18 and 20, whose codes are even at 16 and 20.
  const std::vector<float> row = {-448, 17, 19, 18, 0x1p-10f, 0x1.8p-9f, 0};
  std::vector<Float8E4M3> codes(row.size());
  EXPECT_EQ(RoundToFloat8(row, codes), 1);
  const float expected[] = {-448, 16, 20, 18, 0, 0x1p-8f, 0};
  for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(ToFloat(codes[i]), expected[i]) << i;
}

TEST(Activations, RowsOfFloat8ThatHoldNoNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<Float8E4M3> codes(3, Float8E4M3{0x55});
  const auto all_zero = [&] {
    return codes[0].bits == 0 && codes[1].bits == 0 && codes[2].bits == 0;
  };
  EXPECT_EQ(RoundToFloat8(std::vector<float>{0, -0.0f, 0}, codes), 0);
  EXPECT_TRUE(all_zero());
  EXPECT_EQ(RoundToFloat8(std::vector<float>{0x1p-101f, 0x1p-140f, 0}, codes), 0);
  EXPECT_TRUE(all_zero());
  EXPECT_TRUE(std::isnan(RoundToFloat8(std::vector<float>{1, -infinity, 2}, codes)));
  EXPECT_TRUE(all_zero());
  EXPECT_TRUE(std::isnan(RoundToFloat8(std::vector<float>{1, 2, std::nanf("")}, codes)));
  EXPECT_TRUE(all_zero());
  EXPECT_EQ(RoundToFloat8(std::vector<float>{0x1p-100f, 0, 0}, codes), 0x1p-100f / 448);
  EXPECT_EQ(ToFloat(codes[0]), 448);
}

}  // namespace
}  // namespace annulus
