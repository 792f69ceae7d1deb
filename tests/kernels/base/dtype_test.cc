#include "kernels/base/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A narrow floating-point format by its definition (IEEE 754, section 3.4; OCP 8-bit floating
// point).
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool infinity = true;    // without it, only the all-ones pattern is special: NaN
  bool saturates = false;  // beyond the largest finite number

  uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t patterns() const { return 2 * sign_bit(); }
  int exponent(uint32_t bits) const { return (bits >> mantissa_bits) & ((1 << exponent_bits) - 1); }
  int mantissa(uint32_t bits) const { return bits & ((1 << mantissa_bits) - 1); }
  bool special(uint32_t bits) const {
    return exponent(bits) == (1 << exponent_bits) - 1 &&
           (infinity || mantissa(bits) == (1 << mantissa_bits) - 1);
  }
  bool nan(uint32_t bits) const { return special(bits) && mantissa(bits) != 0; }

  double value(uint32_t bits) const {
    const double sign = bits & sign_bit() ? -1 : 1;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    if (nan(bits)) return std::nan("");
    if (special(bits)) return sign * kInfinity;
    if (exponent(bits) == 0) return sign * std::ldexp(mantissa(bits), 1 - bias - mantissa_bits);
    return sign *
           std::ldexp((1 << mantissa_bits) + mantissa(bits), exponent(bits) - bias - mantissa_bits);
  }
};
constexpr Format kBF16Format{8, 7};
constexpr Format kF16Format{5, 10};
constexpr Format kE4M3Format{4, 3, false, true};
constexpr Format kE5M2Format{5, 2, true, true};

// The formats behind one face, so that each test is written once.
struct BF16Type {
  static constexpr Format kFormat = kBF16Format;
  static float Widen(uint32_t bits) { return ToFloat(BFloat16{static_cast<uint16_t>(bits)}); }
  static uint32_t Narrow(float value) { return ToBFloat16(value).bits; }
};
struct F16Type {
  static constexpr Format kFormat = kF16Format;
  static float Widen(uint32_t bits) { return ToFloat(Float16{static_cast<uint16_t>(bits)}); }
  static uint32_t Narrow(float value) { return ToFloat16(value).bits; }
};

struct E4M3Type {
  static constexpr Format kFormat = kE4M3Format;
  static float Widen(uint32_t bits) { return ToFloat(Float8E4M3{static_cast<uint8_t>(bits)}); }
  static uint32_t Narrow(float value) { return ToFloat8E4M3(value).bits; }
};
struct E5M2Type {
  static constexpr Format kFormat = kE5M2Format;
  static float Widen(uint32_t bits) { return ToFloat(Float8E5M2{static_cast<uint8_t>(bits)}); }
  static uint32_t Narrow(float value) { return ToFloat8E5M2(value).bits; }
};

template <typename T>
class NarrowFormats : public ::testing::Test {};
using Types = ::testing::Types<BF16Type, F16Type, E4M3Type, E5M2Type>;
TYPED_TEST_SUITE(NarrowFormats, Types);

TYPED_TEST(NarrowFormats, WidensEveryPatternExactly) {
  for (uint32_t bits = 0; bits < TypeParam::kFormat.patterns(); ++bits) {
    const float wide = TypeParam::Widen(bits);
    if (TypeParam::kFormat.nan(bits)) {
      ASSERT_TRUE(std::isnan(wide)) << std::hex << bits;
    } else {
      ASSERT_EQ(wide, TypeParam::kFormat.value(bits)) << std::hex << bits;
      ASSERT_EQ(std::signbit(wide), (bits & TypeParam::kFormat.sign_bit()) != 0)
          << std::hex << bits;
    }
  }
}

TYPED_TEST(NarrowFormats, NarrowsEveryPatternBackToItself) {
  for (uint32_t bits = 0; bits < TypeParam::kFormat.patterns(); ++bits) {
    const uint32_t narrow = TypeParam::Narrow(TypeParam::Widen(bits));
    if (TypeParam::kFormat.nan(bits)) {
      ASSERT_TRUE(TypeParam::kFormat.nan(narrow)) << std::hex << bits;
      ASSERT_EQ((narrow ^ bits) & TypeParam::kFormat.sign_bit(), 0u) << std::hex << bits;
    } else if (!TypeParam::kFormat.special(bits) || !TypeParam::kFormat.saturates) {
      ASSERT_EQ(narrow, bits);
    }
  }
}

// Between every two neighbours: the middle goes to the even one, a hair off it to the nearer one.
TYPED_TEST(NarrowFormats, RoundsToNearestWithTiesToEven) {
  const Format format = TypeParam::kFormat;
  for (uint32_t low = 0; !format.special(low); ++low) {
    const uint32_t high = low + 1;
    // The neighbour of the largest finite value stands for the next step beyond it here.
    const double above =
        format.special(high) ? 2 * format.value(low) - format.value(low - 1) : format.value(high);
    const float middle = static_cast<float>((format.value(low) + above) / 2);
    const bool saturated = format.special(high) && format.saturates;
    const uint32_t up = saturated ? low : high;
    const uint32_t even = low % 2 == 0 ? low : up;
    for (const uint32_t sign : {0u, format.sign_bit()}) {
      const float signed_middle = sign ? -middle : middle;
      const float towards_zero = std::nextafterf(signed_middle, 0);
      const float away = std::nextafterf(signed_middle, sign ? -HUGE_VALF : HUGE_VALF);
      ASSERT_EQ(TypeParam::Narrow(signed_middle), even | sign) << std::hex << low;
      ASSERT_EQ(TypeParam::Narrow(towards_zero), low | sign) << std::hex << low;
      ASSERT_EQ(TypeParam::Narrow(away), up | sign) << std::hex << low;
    }
  }
}

TYPED_TEST(NarrowFormats, KeepsNanAndKeepsOrSaturatesInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Format format = TypeParam::kFormat;
  uint32_t largest = 0;
  while (!format.special(largest + 1)) ++largest;
  const double expected = format.saturates ? format.value(largest) : kInfinity;
  EXPECT_EQ(format.value(TypeParam::Narrow(infinity)), expected);
  EXPECT_EQ(format.value(TypeParam::Narrow(-infinity)), -expected);
  EXPECT_EQ(format.value(TypeParam::Narrow(std::numeric_limits<float>::max())), expected);
  // Every NaN, also one whose payload lies in the bits that are dropped.
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xff800001u, 0xffffffffu, 0x7fbfffffu}) {
    EXPECT_TRUE(TypeParam::kFormat.nan(TypeParam::Narrow(std::bit_cast<float>(bits))));
  }
}

TEST(DType, TheLargestOfTheEightBitFormats) {
  EXPECT_EQ(ToFloat(ToFloat8E4M3(1e9f)), 448);
  EXPECT_EQ(ToFloat(ToFloat8E5M2(-1e9f)), -57344);
}

TEST(Int8, RoundsToTheNearestMultipleOfTheScale) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (const float size : {1.0f, 1e-20f, 1e30f}) {
    for (int count : {1, 2, 64, 127}) {
      std::vector<float> values(count);
      for (float& value : values) value = normal(random) * size;
      std::vector<int8_t> q(count);
      const BFloat16 scale = QuantizeInt8(values.data(), q.data(), count);
      std::vector<float> wide(count);
      DequantizeInt8(q.data(), scale, wide.data(), count);
      int largest = 0;
      for (int i = 0; i < count; ++i) {
        EXPECT_EQ(wide[i], double{ToFloat(scale)} * q[i]);
        // Half a step; the quotient itself is rounded, by 127 * 2^-24 steps at most.
        EXPECT_LE(std::abs(double{wide[i]} - values[i]), ToFloat(scale) * (0.5 + 1e-5));
        largest = std::max(largest, std::abs(int{q[i]}));
      }
      EXPECT_EQ(largest, 127);
      // What was rounded is kept when it is rounded again.
      std::vector<int8_t> again(count);
      EXPECT_EQ(QuantizeInt8(wide.data(), again.data(), count).bits, scale.bits);
      EXPECT_EQ(again, q);
    }
  }
}

TEST(Int8, ZerosTinyNumbersAndWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  float wide[2];
  int8_t q[2];
  for (const float value : {0.0f, -0.0f, 1e-38f, std::numeric_limits<float>::denorm_min()}) {
    const float pair[] = {value, -value};
    DequantizeInt8(q, QuantizeInt8(pair, q, 2), wide, 2);
    EXPECT_EQ(wide[0], 0);
    EXPECT_EQ(wide[1], 0);
  }
  for (const float value : {infinity, -infinity, std::nanf("")}) {
    const float pair[] = {1, value};
    DequantizeInt8(q, QuantizeInt8(pair, q, 2), wide, 2);
    EXPECT_TRUE(std::isnan(wide[0]) && std::isnan(wide[1]));
  }
  const float large[] = {std::numeric_limits<float>::max(), 0};
  DequantizeInt8(q, QuantizeInt8(large, q, 2), wide, 2);
  EXPECT_NEAR(wide[0] / large[0], 1, 1.0 / 256);
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(DTypeSize(DType::kF32), 4u);
  EXPECT_EQ(DTypeSize(DType::kBF16), 2u);
  EXPECT_EQ(DTypeSize(DType::kF16), 2u);
  EXPECT_EQ(DTypeSize(DType::kF8E4M3), 1u);
  EXPECT_EQ(DTypeSize(DType::kF8E5M2), 1u);
  EXPECT_EQ(DTypeSize(DType::kI8), 1u);
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI8}) {
    const absl::StatusOr<DType> parsed = ParseDType(DTypeName(dtype));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, dtype);
  }
}

TEST(DType, UnknownNameListsTheKnownOnes) {
  const absl::Status status = ParseDType("float").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::HasSubstr("'float'"), ::testing::HasSubstr("bf16"),
                               ::testing::HasSubstr("fp8_e4m3")));
}

TEST(DType, ArraysConvertElementByElement) {
  std::mt19937 random(7);
  std::vector<float> values(1000);
  for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  std::vector<uint16_t> narrow(values.size());
  std::vector<float> wide(values.size());
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    ConvertFromFloat(dtype, values.data(), narrow.data(), values.size());
    ConvertToFloat(dtype, narrow.data(), wide.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected =
          dtype == DType::kBF16 ? ToFloat(ToBFloat16(values[i])) : ToFloat(ToFloat16(values[i]));
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << values[i];
    }
  }
  std::vector<uint8_t> bytes(values.size());
  for (const DType dtype : {DType::kF8E4M3, DType::kF8E5M2}) {
    ConvertFromFloat(dtype, values.data(), bytes.data(), values.size());
    ConvertToFloat(dtype, bytes.data(), wide.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = dtype == DType::kF8E4M3 ? ToFloat(ToFloat8E4M3(values[i]))
                                                     : ToFloat(ToFloat8E5M2(values[i]));
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << values[i];
    }
  }
  std::vector<float> copy(values.size());
  ConvertFromFloat(DType::kF32, values.data(), copy.data(), values.size());
  ConvertToFloat(DType::kF32, copy.data(), wide.data(), values.size());
  EXPECT_EQ(0, std::memcmp(wide.data(), values.data(), values.size() * sizeof(float)));
}

}  // namespace
}  // namespace annulus
