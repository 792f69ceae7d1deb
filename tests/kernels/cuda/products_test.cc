// Products that are left to a library: what it is asked for, and what is said where there is none.
#include "kernels/cuda/products.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dynamic_library.h"
#include "kernels/cuda/ops.h"
#include "tests/kernels/cpu/cpu_test_util.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ProductsTest : public ::testing::Test {
 protected:
  ~ProductsTest() override { EmulatedDevice::Get().products = false; }
};

TEST_F(ProductsTest, TheBackendSaysWhetherThereIsALibrary) {
  EXPECT_THAT(CreateCudaBackend(0).value()->capabilities().description,
              HasSubstr("own kernels: the emulated device has no library"));
  EmulatedDevice::Get().products = true;
  EXPECT_THAT(CreateCudaBackend(0).value()->capabilities().description,
              Not(HasSubstr("own kernels")));
}

// Padding, strides, bias and accumulation reach the library: with it and without, rows are equal
// within the rounding of float32 sums.
TEST_F(ProductsTest, ManyRowsAreTheSameByTheLibrary) {
  std::mt19937 random(3);
  constexpr int64_t kIn = 45;
  constexpr int64_t kOut = 21;
  const OpTable table = Ops();
  testing::TestMatrix source(kOut, kIn);
  source.FillNormal(random);
  testing::TestMatrix bias(1, kOut);
  bias.FillNormal(random);
  for (const bool accumulate : {false, true}) {
    for (const int64_t rows : {kLibraryRows - 1, kLibraryRows, kLibraryRows + 5}) {
      testing::TestMatrix input(rows, kIn, 3);
      input.FillNormal(random);
      testing::TestMatrix results[2] = {{rows, kOut, 4}, {rows, kOut, 4}};
      for (const bool library : {false, true}) {
        EmulatedDevice::Get().products = library;
        const auto backend = CreateCudaBackend(0).value();
        const auto stream = backend->CreateStream(1).value();
        testing::TestMatrix& result = results[library];
        for (int64_t r = 0; r < rows; ++r) std::fill_n(result.row(r), kOut, 0.5f);
        std::vector<float> dense;
        for (int64_t o = 0; o < kOut; ++o) {
          dense.insert(dense.end(), source.row(o), source.row(o) + kIn);
        }
        const PackedMatrix weight =
            PackMatrix(table, *backend, {dense.data(), DType::kF32, kOut, kIn}, DType::kBF16)
                .value();
        LinearParams params;
        params.input = input.view();
        params.weight = &weight;
        params.bias = bias.row(0);
        params.output = result.view();
        params.accumulate = accumulate;
        ASSERT_TRUE(table.linear(*stream, params).ok());
        ASSERT_TRUE(result.PaddingUntouched());
      }
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < kOut; ++o) {
          const double bound =
              2 * testing::Rounding(kIn) * input.RowNorm(r) * source.RowNorm(o) + 1e-6;
          ASSERT_NEAR(results[0].row(r)[o], results[1].row(r)[o], bound) << r << " " << o;
        }
      }
    }
  }
}

TEST(DynamicLibraryTest, SaysWhatIsMissingAndWhatToDo) {
  const auto missing = DynamicLibrary::Open("libannulus-nowhere.so.7", "install nowhere");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.status().message()),
              AllOf(HasSubstr("libannulus-nowhere.so.7"), HasSubstr("install nowhere")));
  const auto math = DynamicLibrary::Open("libm.so.6", "install another");
  ASSERT_TRUE(math.ok()) << math.status();
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(math->Find("cos", cosine).ok());
  EXPECT_EQ(cosine(0), 1);
  const absl::Status absent = math->Find("annulus_nothing", cosine);
  EXPECT_EQ(absent.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(absent.message()),
      AllOf(HasSubstr("libm.so.6 has no function annulus_nothing"), HasSubstr("install another")));
}

}  // namespace
}  // namespace annulus::cuda
