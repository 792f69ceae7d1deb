// Products that are left to a library: what it is asked for, and what is said where there is none.
#include "kernels/cuda/products.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/product_ways.h"
#include "tests/kernels/cpu/cpu_test_util.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ProductsTest : public ::testing::Test {
 protected:
  // What other tests share is opened before there is a library, whichever test comes first.
  ProductsTest() { testing::BackendOf(*testing::TestedTables().front()); }
  ~ProductsTest() override {
    EmulatedDevice::Get().products = false;
    EmulatedDevice::Get().no_way_for_out = -1;
    EmulatedDevice::Get().no_way_for_scales = false;
    EmulatedDevice::Get().unsupported_out = -1;
    SetCapability(9, 0);
  }
  static void SetCapability(int major, int minor) {
    EmulatedDevice::Get().major = major;
    EmulatedDevice::Get().minor = minor;
  }
};

// Rows of 28 numbers from a multiple of 16 bytes on, as the library wants those of fp8, and of
// which products write `out`.
struct AlignedOutput {
  AlignedOutput(int64_t rows, int64_t out) : memory(static_cast<size_t>(rows * 28 + 4), 0.5f) {
    float* begin = memory.data();
    while (reinterpret_cast<uintptr_t>(begin) % 16 != 0) ++begin;
    view = {begin, rows, out, 28};
  }
  AlignedOutput(const AlignedOutput&) = delete;

  std::vector<float> memory;
  MatrixView view;
};

TEST_F(ProductsTest, TheBackendSaysWhetherThereIsALibrary) {
  EXPECT_THAT(CreateCudaBackend(0).value()->capabilities().description,
              HasSubstr("own kernels: the emulated device has no library"));
  EmulatedDevice::Get().products = true;
  EXPECT_THAT(CreateCudaBackend(0).value()->capabilities().description,
              Not(HasSubstr("own kernels")));
}

// Row-invariant tables leave it nothing: a row of many has the bits that it has alone.
TEST_F(ProductsTest, InvariantTablesMultiplyByKernels) {
  std::mt19937 random(4);
  constexpr int64_t kIn = 64;
  constexpr int64_t kOut = 24;
  constexpr int64_t kRows = kLibraryRows + 5;
  const OpTable table = InvariantHopperOps();
  testing::TestMatrix source(kOut, kIn);
  source.FillNormal(random);
  testing::TestMatrix input(kRows, kIn, 3);
  input.FillNormal(random);
  EmulatedDevice::Get().products = true;
  const auto backend = CreateCudaBackend(0).value();
  const auto stream = backend->CreateStream(1).value();
  for (const Activations activations : {Activations::kFloat, Activations::kFp8}) {
    const DType dtype = activations == Activations::kFp8 ? DType::kF8E4M3 : DType::kBF16;
    const PackedMatrix weight = testing::Pack(table, source, dtype);
    testing::TestMatrix results[2] = {{kRows, kOut, 4}, {kRows, kOut, 4}};
    LinearParams params;
    params.weight = &weight;
    params.activations = activations;
    params.input = input.view();
    params.output = results[0].view();
    ASSERT_TRUE(table.linears(*stream, {&params, 1}).ok());
    for (int64_t r = 0; r < kRows; r += 13) {
      params.input = input.view().row_range(r, 1);
      params.output = results[1].view().row_range(r, 1);
      ASSERT_TRUE(table.linear(*stream, params).ok());
      EXPECT_TRUE(testing::SameBits(results[0].row(r), results[1].row(r), kOut)) << "row " << r;
    }
  }
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

// fp8 by the library on every kind of device that has it, and by own kernels where that or the
// shape does not fit: always what the reference gives. Without a way for scales the library still
// multiplies.
TEST_F(ProductsTest, Fp8IsTheSameWhoeverMultiplies) {
  struct Way {
    int major;
    int minor;
    int64_t out;
    bool library;
    bool no_way_for_scales = false;
  };
  const Way ways[] = {{8, 0, 24, false}, {8, 6, 24, false}, {8, 9, 24, true},
                      {9, 0, 24, true},  {10, 0, 24, true}, {12, 0, 24, true},
                      {9, 0, 21, false}, {8, 9, 21, false}, {9, 0, 24, true, true}};
  std::mt19937 random(5);
  constexpr int64_t kIn = 45;
  EmulatedDevice& device = EmulatedDevice::Get();
  device.products = true;
  const OpTable table = Ops();
  for (const Way& way : ways) {
    SetCapability(way.major, way.minor);
    device.no_way_for_scales = way.no_way_for_scales;
    const auto backend = CreateCudaBackend(0).value();
    EXPECT_EQ(backend->capabilities().description.find("fp8 by own kernels") != std::string::npos,
              way.major == 8 && way.minor < 9);
    const auto stream = backend->CreateStream(1).value();
    testing::TestMatrix source(way.out, kIn);
    source.FillNormal(random);
    testing::TestMatrix bias(1, way.out);
    bias.FillNormal(random);
    const PackedMatrix expected_weight =
        testing::Pack(testing::Reference(), source, DType::kF8E4M3);
    const PackedMatrix weight = testing::Pack(table, source, DType::kF8E4M3);
    for (int options = 0; options < 4; ++options) {
      const int64_t rows = kLibraryRows + 5 * (options % 2);
      SCOPED_TRACE(::testing::Message() << way.major << "." << way.minor << " out " << way.out
                                        << " rows " << rows << " options " << options);
      testing::TestMatrix input(rows, kIn, 3);
      input.FillNormal(random);
      const AlignedOutput expected(rows, way.out);
      const AlignedOutput actual(rows, way.out);
      LinearParams params;
      params.input = input.view();
      params.bias = options / 2 == 1 ? bias.row(0) : nullptr;
      params.accumulate = options % 2 == 1;
      params.activations = Activations::kFp8;
      params.weight = &expected_weight;
      params.output = expected.view;
      ASSERT_TRUE(testing::Reference().linear(*testing::MakeStream(1), params).ok());
      params.weight = &weight;
      params.output = actual.view;
      const int before = device.fp8_products;
      ASSERT_TRUE(table.linear(*stream, params).ok());
      ASSERT_TRUE(stream->Synchronize().ok());
      EXPECT_EQ(device.fp8_products - before, way.library ? 1 : 0);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < way.out; ++o) {
          const double bound =
              2.3 * testing::Rounding(kIn + 4) * (input.RowNorm(r) * source.RowNorm(o) + 4);
          ASSERT_NEAR(expected.view.row(r)[o], actual.view.row(r)[o], bound) << r << " " << o;
        }
        for (int64_t o = way.out; o < 28; ++o) ASSERT_EQ(actual.view.row(r)[o], 0.5f);
      }
    }
  }
}

// What the library has no way for, or names one for that it does not support, is multiplied by own
// kernels, and asked for once; of fp8 with the scales and without.
TEST_F(ProductsTest, OwnKernelsMultiplyWhatTheLibraryDoesNotServe) {
  constexpr int64_t kIn = 45;
  constexpr int64_t kOut = 24;
  constexpr int64_t kRows = kLibraryRows + 5;
  std::mt19937 random(6);
  EmulatedDevice& device = EmulatedDevice::Get();
  device.products = true;
  testing::TestMatrix source(kOut, kIn);
  source.FillNormal(random);
  testing::TestMatrix input(kRows, kIn, 3);
  input.FillNormal(random);
  for (int64_t r = 0; r < kRows; ++r) testing::RoundToStorage(DType::kBF16, input.row(r), kIn);
  const OpTable table = Ops();
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    SCOPED_TRACE(DTypeName(dtype));
    const PackedMatrix weights[2] = {testing::Pack(testing::Reference(), source, dtype),
                                     testing::Pack(table, source, dtype)};
    const auto backend = CreateCudaBackend(0).value();
    for (const auto& [no_way, unsupported] :
         {std::pair<int64_t, int64_t>{kOut, -1}, {-1, kOut}, {-1, -1}}) {
      device.no_way_for_out = no_way;
      device.unsupported_out = unsupported;
      const bool served = no_way < 0 && unsupported < 0;
      const auto stream = backend->CreateStream(1).value();
      const int asked = device.ways_asked;
      const int multiplied = device.library_products;
      for (const int round : {1, 2}) {
        const AlignedOutput expected(kRows, kOut);
        const AlignedOutput actual(kRows, kOut);
        LinearParams params;
        params.input = std::as_const(input).view();
        params.accumulate = true;
        if (dtype == DType::kF8E4M3) params.activations = Activations::kFp8;
        params.weight = &weights[0];
        params.output = expected.view;
        ASSERT_TRUE(testing::Reference().linear(*testing::MakeStream(1), params).ok());
        params.weight = &weights[1];
        params.output = actual.view;
        ASSERT_TRUE(table.linear(*stream, params).ok());
        ASSERT_TRUE(stream->Synchronize().ok());
        EXPECT_EQ(device.ways_asked - asked, !served && dtype == DType::kF8E4M3 ? 2 : 1);
        EXPECT_EQ(device.library_products - multiplied, served ? round : 0);
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t o = 0; o < kOut; ++o) {
            const double bound =
                2.3 * testing::Rounding(kIn + 4) * (input.RowNorm(r) * source.RowNorm(o) + 4);
            ASSERT_NEAR(expected.view.row(r)[o], actual.view.row(r)[o], bound) << r << " " << o;
          }
        }
      }
    }
  }
}

// Products of one op have their input rounded once for each form of it that they want, and the
// bits of each alone.
TEST_F(ProductsTest, ProductsOfOneInputShareWhatIsRounded) {
  constexpr int64_t kRows = kLibraryRows + 10;
  constexpr int64_t kIn = 64;
  constexpr int64_t kOut = 24;
  struct Part {
    DType dtype;
    Activations activations = Activations::kFloat;
    int64_t rows = kRows;
    bool accumulate = false;
  };
  struct Case {
    std::vector<Part> parts;
    int rounded;  // times, with a library and without
    int rounded_without;
    bool no_way_for_scales = false;
  };
  const Part bf16{DType::kBF16};
  const Part int8{DType::kI8};
  const Part fp8{DType::kF8E4M3, Activations::kFp8};
  const Part fewer{DType::kBF16, Activations::kFloat, kRows - 5};
  const Part added{DType::kF8E4M3, Activations::kFp8, kRows, true};
  const Case cases[] = {
      {{bf16, bf16, bf16}, 1, 1},
      {{bf16, int8, int8}, 2, 1},
      {{int8, {DType::kI4G32}, int8}, 3, 3},
      {{fp8, fp8}, 1, 1},
      {{fp8, bf16, fp8}, 3, 3},
      {{fewer, bf16}, 2, 2},
      // Sums of the second lie aside: in the first round memory grows between the products.
      {{fp8, added}, 1, 1, /*no_way_for_scales=*/true},
  };
  std::mt19937 random(7);
  testing::TestMatrix source(kOut, kIn);
  source.FillNormal(random);
  testing::TestMatrix input(kRows, kIn, 3);
  input.FillNormal(random);
  EmulatedDevice& device = EmulatedDevice::Get();
  const OpTable table = Ops();
  for (const Case& test : cases) {
    device.no_way_for_scales = test.no_way_for_scales;
    for (const bool library : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "case " << &test - cases << " library " << library);
      device.products = library;
      const auto backend = CreateCudaBackend(0).value();
      const auto stream = backend->CreateStream(1).value();
      std::vector<PackedMatrix> weights;
      for (const Part& part : test.parts)
        weights.push_back(testing::Pack(table, source, part.dtype));
      std::vector<std::unique_ptr<AlignedOutput>> outputs;
      const auto ask = [&] {
        std::vector<LinearParams> parts;
        for (size_t i = 0; i < weights.size(); ++i) {
          const Part& part = test.parts[i];
          outputs.push_back(std::make_unique<AlignedOutput>(part.rows, kOut));
          parts.push_back({std::as_const(input).view().row_range(0, part.rows), &weights[i],
                           nullptr, outputs.back()->view, part.accumulate, part.activations});
        }
        return parts;
      };
      const auto alone = backend->CreateStream(1).value();
      for (const LinearParams& part : ask()) ASSERT_TRUE(table.linear(*alone, part).ok());
      ASSERT_TRUE(alone->Synchronize().ok());
      for (const bool first : {true, false}) {
        const int64_t launches = device.launches;
        const int multiplied = device.library_products;
        const std::vector<LinearParams> parts = ask();
        ASSERT_TRUE(Linears(table, *stream, parts).ok());
        ASSERT_TRUE(stream->Synchronize().ok());
        for (size_t i = 0; i < parts.size(); ++i) {
          ASSERT_EQ(outputs[outputs.size() - parts.size() + i]->memory, outputs[i]->memory) << i;
        }
        if (first) continue;
        const bool scaled_aside = test.no_way_for_scales && library;  // by a kernel each
        const auto by_kernels = static_cast<int64_t>(parts.size()) -
                                (scaled_aside ? 0 : device.library_products - multiplied);
        EXPECT_EQ(device.launches - launches - by_kernels,
                  library ? test.rounded : test.rounded_without);
      }
    }
  }
}

// A way is for products that are alike in all that it depends on.
TEST(ProductWaysTest, TellsKindsApartAndKeepsNoErrors) {
  alignas(16) float place[8] = {};
  Product product;
  product.rows = product.out = product.in = product.stride = 8;
  product.output = place;
  ProductWays<int> ways;
  int asked = 0;
  const auto find = [&](const Product& p) {
    return ways.Find(KindOf(p), [&]() -> absl::StatusOr<std::optional<int>> { return ++asked; });
  };
  const auto refuse = [] { return absl::StatusOr<std::optional<int>>(absl::InternalError("")); };
  EXPECT_FALSE(ways.Find(KindOf(product), refuse).ok());
  EXPECT_EQ(**find(product), 1);
  EXPECT_EQ(**find(product), 1);
  const auto is_another = [&](auto change) {
    Product other = product;
    change(other);
    const int before = asked;
    EXPECT_EQ(**find(other), before + 1);
    EXPECT_EQ(**find(other), before + 1);
  };
  is_another([](Product& p) { p.rows = 9; });
  is_another([](Product& p) { p.out = 9; });
  is_another([](Product& p) { p.in = 9; });
  is_another([](Product& p) { p.stride = 9; });
  is_another([](Product& p) { p.factors = Factors::kFloat8E4M3; });
  is_another([](Product& p) { p.accumulate = true; });
  is_another([&](Product& p) { p.input_scales = place; });
  is_another([&](Product& p) { p.output = place + 1; });
  is_another([&](Product& p) { p.output = place + 2; });
  is_another([&](Product& p) { p.bias = place; });
  is_another([&](Product& p) { p.bias = place + 1; });
  EXPECT_EQ(**find(product), 1);
}

// What the plan must never ask of the library, the library would refuse.
TEST_F(ProductsTest, TheLibraryRefusesWhatItLacks) {
  EmulatedDevice::Get().products = true;
  const auto backend = CreateCudaBackend(0).value();
  const auto stream = backend->CreateStream(1).value();
  const auto products = OpenProducts().value();
  DeviceBuffer memory = backend->Allocate(Products::kWorkspaceBytes + 4096).value();
  std::byte* const data = memory.data();
  auto* const scales = reinterpret_cast<float*>(data + 3072);
  Product fits;
  fits.rows = 3;
  fits.out = 8;
  fits.in = 32;
  fits.factors = Factors::kFloat8E4M3;
  fits.input = data;
  fits.weight = data + 256;
  fits.depth = 32;
  fits.output = reinterpret_cast<float*>(data + 1024);
  fits.stride = 12;
  const auto message = [&](const Product& product) {
    const auto handle = static_cast<CudaStream&>(*stream).handle();
    const absl::Status status = products->Multiply(handle, product, data + 4096).status();
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInternal);
    return std::string(status.message());
  };
  EXPECT_EQ(message(fits), "");
  const auto refused = [&](const char* says, auto change) {
    Product product = fits;
    change(product);
    EXPECT_THAT(message(product), HasSubstr(says));
  };
  refused("factors", [](Product& p) { p.in = 24; });
  refused("factors", [](Product& p) { p.depth = 40; });
  refused("outputs", [](Product& p) { p.out = 6; });
  refused("outputs", [](Product& p) { p.stride = 9; });
  refused("alignment", [](Product& p) { ++p.output; });
  refused("alignment", [&](Product& p) { p.input = data + 8; });
  refused("bias", [&](Product& p) { p.bias = scales; });
  refused("one side", [&](Product& p) { p.input_scales = scales; });
  const auto scaled = [&](Product& p) { p.input_scales = p.weight_scales = scales; };
  Product both = fits;
  scaled(both);
  EXPECT_EQ(message(both), "");
  for (const auto& [major, minor] : {std::pair{8, 9}, {10, 0}, {12, 0}}) {
    SetCapability(major, minor);
    EXPECT_EQ(message(fits), "");
    refused("scales of rows", scaled);
  }
  SetCapability(8, 6);
  refused("before compute capability 8.9", [](Product&) {});
}

}  // namespace
}  // namespace annulus::cuda
