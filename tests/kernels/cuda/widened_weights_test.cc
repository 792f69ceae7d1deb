// Quantised weights of many rows, which the library multiplies as 16-bit numbers.
#include <algorithm>
#include <random>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/tuning/linear_plan.h"
#include "tests/kernels/cpu/cpu_test_util.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

class WidenedWeightsTest : public ::testing::Test {
 protected:
  // What other tests share is opened before there is a library, whichever test comes first.
  WidenedWeightsTest() { testing::BackendOf(*testing::TestedTables().front()); }
  ~WidenedWeightsTest() override {
    EmulatedDevice::Get().products = false;
    EmulatedDevice::Get().no_way_for_out = -1;
  }
};

// Codes of many rows: the library multiplies them, widened, as soon as widening pays.
TEST_F(WidenedWeightsTest, CodesAreWidenedForTheLibrary) {
  constexpr int64_t kIn = 45;
  constexpr int64_t kOut = 24;
  std::mt19937 random(8);
  EmulatedDevice& device = EmulatedDevice::Get();
  device.products = true;
  const OpTable table = Ops();
  testing::TestMatrix source(kOut, kIn);
  source.FillNormal(random);
  testing::TestMatrix bias(1, kOut);
  bias.FillNormal(random);
  for (const DType dtype :
       {DType::kI8, DType::kF8E4M3, DType::kF8E5M2, DType::kI4G32, DType::kI4G64}) {
    const auto backend = CreateCudaBackend(0).value();
    const auto stream = backend->CreateStream(1).value();
    const PackedMatrix expected_weight = testing::Pack(testing::Reference(), source, dtype);
    const PackedMatrix weight = testing::Pack(table, source, dtype);
    for (int options = 0; options < 4; ++options) {
      for (const int64_t rows : {kWidenedRows - 1, kWidenedRows + 3}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(dtype) << " options " << options << " rows " << rows);
        testing::TestMatrix input(rows, kIn, 3);
        input.FillNormal(random);
        for (int64_t r = 0; r < rows; ++r) testing::RoundToStorage(DType::kBF16, input.row(r), kIn);
        testing::TestMatrix initial(rows, kOut, 4);
        initial.FillNormal(random);
        testing::TestMatrix expected = initial;
        testing::TestMatrix actual = initial;
        LinearParams params;
        params.input = std::as_const(input).view();
        params.bias = options / 2 == 1 ? bias.row(0) : nullptr;
        params.accumulate = options % 2 == 1;
        params.weight = &expected_weight;
        params.output = expected.view();
        ASSERT_TRUE(testing::Reference().linear(*testing::MakeStream(1), params).ok());
        params.weight = &weight;
        params.output = actual.view();
        const int before = device.library_products;
        ASSERT_TRUE(table.linear(*stream, params).ok());
        ASSERT_TRUE(stream->Synchronize().ok());
        EXPECT_EQ(device.library_products - before, rows >= kWidenedRows ? 1 : 0);
        EXPECT_TRUE(actual.PaddingUntouched());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t o = 0; o < kOut; ++o) {
            const double bound =
                2.3 * testing::Rounding(kIn + 4) * (input.RowNorm(r) * source.RowNorm(o) + 4);
            ASSERT_NEAR(expected.row(r)[o], actual.row(r)[o], bound) << r << " " << o;
          }
        }
      }
    }
  }
}

// Outputs beyond those that are widened at a time: by the library too or, if it has no way for so
// few, by own kernels.
TEST_F(WidenedWeightsTest, WideMatricesAreWidenedInPieces) {
  constexpr int64_t kIn = 33;
  constexpr int64_t kLast = 5;
  const int64_t out = WidenedOutputs(kWidenedRows, 1 << 20) + kLast;
  std::mt19937 random(9);
  EmulatedDevice& device = EmulatedDevice::Get();
  device.products = true;
  const OpTable table = Ops();
  testing::TestMatrix source(out, kIn);
  source.FillNormal(random);
  testing::TestMatrix input(kWidenedRows, kIn, 3);
  input.FillNormal(random);
  for (int64_t r = 0; r < kWidenedRows; ++r) {
    testing::RoundToStorage(DType::kBF16, input.row(r), kIn);
  }
  const auto backend = CreateCudaBackend(0).value();
  const PackedMatrix weights[2] = {testing::Pack(testing::Reference(), source, DType::kI8),
                                   testing::Pack(table, source, DType::kI8)};
  testing::TestMatrix expected(kWidenedRows, out, 1);
  LinearParams params;
  params.input = std::as_const(input).view();
  params.weight = &weights[0];
  params.output = expected.view();
  ASSERT_TRUE(testing::Reference().linear(*testing::MakeStream(1), params).ok());
  for (const int64_t no_way : {int64_t{-1}, kLast}) {
    device.no_way_for_out = no_way;
    const auto fresh = backend->CreateStream(1).value();
    testing::TestMatrix actual(kWidenedRows, out, 2);
    params.weight = &weights[1];
    params.output = actual.view();
    const int before = device.library_products;
    ASSERT_TRUE(table.linear(*fresh, params).ok());
    ASSERT_TRUE(fresh->Synchronize().ok());
    EXPECT_EQ(device.library_products - before, no_way < 0 ? 2 : 1);
    EXPECT_TRUE(actual.PaddingUntouched());
    for (int64_t r = 0; r < kWidenedRows; ++r) {
      for (int64_t o = 0; o < out; ++o) {
        const double bound = 2.3 * testing::Rounding(kIn + 4) * (input.RowNorm(r) * 12 + 4);
        ASSERT_NEAR(expected.row(r)[o], actual.row(r)[o], bound) << r << " " << o;
      }
    }
  }
}

}  // namespace
}  // namespace annulus::cuda
