// Weights of the types of GGUF files, as bytes that a file may have.
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

using FileWeightsTest = EveryTable;

// Any bytes are codes, and scales and minimums reach from the smallest to the largest halves: each
// weight is what the file says. A table whose products flush subnormal numbers sees none: all of
// f16 are normal in float32 and bf16.
TEST_P(FileWeightsTest, EveryCodeScaleAndMinimumOfAFileIsItsWeight) {
  constexpr int64_t kIn = 96;
  constexpr int64_t kOut = 35;
  for (const DType dtype : FileDTypesOf(table())) {
    SCOPED_TRACE(DTypeName(dtype));
    std::mt19937 random(23);
    std::vector<std::byte> codes(kOut * QuantizedRowBytes(dtype, kIn));
    for (std::byte& code : codes) code = static_cast<std::byte>(random());
    codes[0] = codes[1] = codes[2] = codes[3] = codes[6] = std::byte{0x80};
    std::vector<uint16_t> scales(kOut * QuantizedScaleBytes(dtype, kIn) / 2);
    for (uint16_t& scale : scales) {
      scale = static_cast<uint16_t>(random() & 0xffff);
      if ((scale & 0x7c00) == 0x7c00) scale &= 0x83ff;  // subnormal, not infinite
    }
    const HostTensorView rows{codes.data(), dtype, kOut, kIn,
                              reinterpret_cast<const std::byte*>(scales.data())};
    const absl::StatusOr<PackedMatrix> packed =
        PackMatrix(table(), BackendOf(table()), rows, dtype);
    ASSERT_TRUE(packed.ok()) << packed.status();
    // Row i of the inputs is 1 at input i: its outputs are weights.
    TestMatrix ones(kIn, kIn);
    for (int64_t r = 0; r < kIn; ++r) {
      for (int64_t c = 0; c < kIn; ++c) ones.row(r)[c] = r == c ? 1.0f : 0.0f;
    }
    for (const int64_t batch : {1, 3, 96}) {
      TestMatrix output(kIn, kOut);
      for (int64_t r = 0; r < kIn; r += batch) {
        LinearParams params;
        params.input = ones.view().row_range(r, batch);
        params.weight = &*packed;
        params.output = output.view().row_range(r, batch);
        ASSERT_TRUE(table().linear(*MakeStream(table(), 1), params).ok());
      }
      std::vector<float> expected(kIn);
      for (int64_t o = 0; o < kOut; ++o) {
        DequantizeRow(
            dtype, codes.data() + o * QuantizedRowBytes(dtype, kIn),
            reinterpret_cast<const std::byte*>(scales.data()) + o * QuantizedScaleBytes(dtype, kIn),
            expected);
        for (int64_t i = 0; i < kIn; ++i) {
          // With a minimum, products and inputs are summed apart and rounded on their own.
          const double size =
              std::abs(expected[i]) + (dtype == DType::kQ4_1 ? 16 * 65504 * kUnit : 0);
          ASSERT_NEAR(output.row(i)[o], expected[i], 4 * kUnit * size + 1e-9)
              << "batch " << batch << " weight " << o << " " << i;
        }
      }
    }
  }
}

ANNULUS_FOR_EVERY_TABLE(FileWeightsTest);

}  // namespace
}  // namespace annulus::testing
