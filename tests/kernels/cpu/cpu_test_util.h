#ifndef ANNULUS_TESTS_KERNELS_CPU_CPU_TEST_UTIL_H_
#define ANNULUS_TESTS_KERNELS_CPU_CPU_TEST_UTIL_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "kernels/base/quantize.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "kernels/registry.h"
#include "tests/kernels/cuda/which_gpu.h"
#include "tests/support/round_to_storage.h"

namespace annulus::testing {

// Rounding bounds in these tests. The worst case of n roundings is n * kUnit; they are as good as
// independent, so kLambda * sqrt(n) * kUnit holds with a probability that no test run will meet
// the other side of (Higham and Mary 2019, "A new approach to probabilistic rounding error
// analysis"). Both sides of a comparison round: bounds are doubled where both are float32.
inline constexpr double kUnit = 0x1p-24;
inline constexpr double kLambda = 6;
inline double Rounding(double depth) { return kLambda * std::sqrt(depth + 1) * kUnit; }

// The tables of this machine; made once per process, read-only.
inline const KernelRegistry& CpuRegistry() {
  static const KernelRegistry* const registry = [] {
    auto* filled = new KernelRegistry();
    RegisterCpuKernels(*filled);
    return filled;
  }();
  return *registry;
}

inline const OpTable& Reference() {
  for (const OpTable* table : CpuRegistry().Available("cpu")) {
    if (table->name == "cpu/reference") return *table;
  }
  ADD_FAILURE() << "no reference";
  std::abort();
}

inline Backend& CpuBackend() {
  static Backend* const backend = CreateCpuBackend().value().release();
  return *backend;
}

// What the tests of this program run over: the tables of the CPU (cpu_tables.cc), or those of a
// GPU, emulated or not (tests/kernels/cuda/cuda_tables.cc). Memory of either is the host's.
std::vector<const OpTable*> TestedTables();
// Those of them that attend differently.
std::vector<const OpTable*> TestedAttention();
// The backend of a tested table, or of the reference.
Backend& BackendOf(const OpTable& table);

// A stream of the CPU.
inline std::unique_ptr<Stream> MakeStream(int threads) {
  return CpuBackend().CreateStream(threads).value();
}
inline std::unique_ptr<Stream> MakeStream(const OpTable& table, int threads) {
  return BackendOf(table).CreateStream(threads).value();
}

inline bool IsOfGpu(const OpTable& table) { return table.name.rfind("cuda/", 0) == 0; }

// Whether a table's threads are fibers of one: then a part of the long cases has to do. A real GPU
// runs them all.
inline bool IsEmulated(const OpTable& table) { return IsOfGpu(table) && !IsRealGpu(); }

// Whether a table's products of narrow types take bf16 operands, as kernels/ops/ allows.
inline bool MultipliesBf16(const OpTable& table) {
  return table.name == "cpu/avx512-bf16" || table.name == "cpu/amx" || IsOfGpu(table);
}

// A dense float32 matrix, with `padding` unused elements (NaN) between its rows.
class TestMatrix {
 public:
  TestMatrix(int64_t rows, int64_t cols, int64_t padding = 0)
      : rows_(rows),
        cols_(cols),
        stride_(cols + padding),
        values_(rows * stride_ + padding + 1, std::nanf("")) {}

  MatrixView view() { return {values_.data(), rows_, cols_, stride_}; }
  ConstMatrixView view() const { return {values_.data(), rows_, cols_, stride_}; }
  float* row(int64_t r) { return values_.data() + r * stride_; }
  const float* row(int64_t r) const { return values_.data() + r * stride_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  void FillNormal(std::mt19937& random, float deviation = 1) {
    std::normal_distribution<float> normal(0, deviation);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) row(r)[c] = normal(random);
    }
  }

  double RowNorm(int64_t r) const {
    double sum = 0;
    for (int64_t c = 0; c < cols_; ++c) sum += double{row(r)[c]} * row(r)[c];
    return std::sqrt(sum);
  }

  // Whether nothing was written between the rows.
  bool PaddingUntouched() const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = cols_; c < stride_; ++c) {
        if (!std::isnan(row(r)[c])) return false;
      }
    }
    return std::isnan(values_.back());
  }

 private:
  int64_t rows_;
  int64_t cols_;
  int64_t stride_;
  std::vector<float> values_;
};

inline bool SameBits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

inline constexpr DType kCpuDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
// Of weights, in every table.
inline constexpr DType kWeightDTypes[] = {DType::kF32,    DType::kBF16,   DType::kF16,
                                          DType::kF8E4M3, DType::kF8E5M2, DType::kI8,
                                          DType::kI4G32,  DType::kI4G64};

// The types of GGUF files are the CPU's alone.
inline std::vector<DType> FileDTypesOf(const OpTable& table) {
  if (IsOfGpu(table)) return {};
  return {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};
}

// All types of weights that one table serves.
inline std::vector<DType> WeightDTypesOf(const OpTable& table) {
  std::vector<DType> dtypes = FileDTypesOf(table);
  dtypes.insert(dtypes.begin(), std::begin(kWeightDTypes), std::end(kWeightDTypes));
  return dtypes;
}

// What a row of weights becomes when it is stored as `dtype`.
inline std::vector<float> Stored(DType dtype, const float* row, int64_t count) {
  std::vector<float> values(count);
  std::vector<std::byte> codes(4 * count);
  if (IsQuantized(dtype)) {
    alignas(4) std::byte scales[4096];
    EXPECT_TRUE(
        QuantizeRow(dtype, {row, static_cast<size_t>(count)}, codes.data(), scales, nullptr).ok());
    DequantizeRow(dtype, codes.data(), scales, values);
  } else {
    ConvertFromFloat(dtype, row, codes.data(), count);
    ConvertToFloat(dtype, codes.data(), values.data(), count);
  }
  return values;
}
inline constexpr DType kKvDTypes[] = {DType::kF32,    DType::kBF16,   DType::kF16,
                                      DType::kF8E4M3, DType::kF8E5M2, DType::kI8};

// `source` packed by `table`.
inline PackedMatrix Pack(const OpTable& table, const TestMatrix& source, DType dtype) {
  std::vector<float> dense(source.rows() * source.cols());
  for (int64_t r = 0; r < source.rows(); ++r) {
    std::copy_n(source.row(r), source.cols(), dense.data() + r * source.cols());
  }
  return PackMatrix(table, BackendOf(table),
                    {dense.data(), DType::kF32, source.rows(), source.cols()}, dtype)
      .value();
}

// Tests over every table that this program tests, the reference included.
class EveryTable : public ::testing::TestWithParam<const OpTable*> {
 protected:
  const OpTable& table() const { return *GetParam(); }
};

inline std::string TableName(const ::testing::TestParamInfo<const OpTable*>& info) {
  return absl::StrReplaceAll(info.param->name, {{"/", "_"}, {"-", "_"}});
}

#define ANNULUS_FOR_EVERY_ATTENTION(suite)                                             \
  INSTANTIATE_TEST_SUITE_P(Table, suite,                                               \
                           ::testing::ValuesIn(::annulus::testing::TestedAttention()), \
                           ::annulus::testing::TableName)

#define ANNULUS_FOR_EVERY_TABLE(suite)                                                            \
  INSTANTIATE_TEST_SUITE_P(Table, suite, ::testing::ValuesIn(::annulus::testing::TestedTables()), \
                           ::annulus::testing::TableName)

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_KERNELS_CPU_CPU_TEST_UTIL_H_
