#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

using KvTest = EveryTable;

const KvPageShape kPageShapes[] = {
    {.page_tokens = 16, .kv_heads = 1, .k_dim = 1, .v_dim = 1},
    {.page_tokens = 16, .kv_heads = 3, .k_dim = 17, .v_dim = 40},
    {.page_tokens = 48, .kv_heads = 2, .k_dim = 64, .v_dim = 33},
    {.page_tokens = 64, .kv_heads = 2, .k_dim = 128, .v_dim = 64},
    {.page_tokens = 128, .kv_heads = 1, .k_dim = 1024, .v_dim = 1024},
};

TEST_P(KvTest, PageBytesHoldKAndVAndAreAligned) {
  for (KvPageShape shape : kPageShapes) {
    for (const DType dtype : kKvDTypes) {
      shape.dtype = dtype;
      const size_t bytes = table().kv_page_bytes(shape);
      const size_t scales = dtype == DType::kI8 ? 2 * sizeof(BFloat16) : 0;
      const size_t needed = size_t(shape.page_tokens) * shape.kv_heads *
                            ((shape.k_dim + shape.v_dim) * DTypeSize(dtype) + scales);
      EXPECT_GE(bytes, needed);
      EXPECT_EQ(bytes % 64, 0u);
      if (shape.v_dim % 16 == 0 && shape.k_dim % 32 == 0) {
        EXPECT_LT(bytes, needed + 64);
      }
    }
  }
}

// Rows written in any order, one or many at a time, are read back as their rounded selves; nothing
// else in memory changes.
TEST_P(KvTest, AppendThenReadGivesTheRoundedRows) {
  uint32_t seed = 31;
  for (KvPageShape shape : kPageShapes) {
    for (const DType dtype : kKvDTypes) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << DTypeName(dtype) << " k_dim "
                                        << shape.k_dim << " v_dim " << shape.v_dim);
      std::mt19937 random(seed++);
      shape.dtype = dtype;
      const size_t page_bytes = table().kv_page_bytes(shape);
      const int pages = 3;
      std::vector<std::byte> memory(pages * page_bytes + 64, std::byte{0x7b});
      const int64_t tokens = int64_t{pages} * shape.page_tokens;
      TestMatrix k(tokens, int64_t{shape.kv_heads} * shape.k_dim, 3);
      TestMatrix v(tokens, int64_t{shape.kv_heads} * shape.v_dim, 1);
      k.FillNormal(random);
      v.FillNormal(random);
      std::vector<int32_t> place(tokens);
      std::iota(place.begin(), place.end(), 0);
      std::shuffle(place.begin(), place.end(), random);
      std::vector<std::byte*> row_pages;
      std::vector<int32_t> slots;
      for (const int32_t at : place) {
        row_pages.push_back(memory.data() + at / shape.page_tokens * page_bytes);
        slots.push_back(at % shape.page_tokens);
      }
      const auto stream = MakeStream(table(), 2);
      const int64_t split = tokens / 3;
      for (const auto& [begin, count] : {std::pair{int64_t{0}, split}, {split, tokens - split}}) {
        const KvAppendParams params{shape, std::as_const(k).view().row_range(begin, count),
                                    std::as_const(v).view().row_range(begin, count),
                                    std::span(row_pages).subspan(begin, count),
                                    std::span(slots).subspan(begin, count)};
        ASSERT_TRUE(table().kv_append(*stream, params).ok());
      }
      EXPECT_TRUE(std::all_of(memory.end() - 64, memory.end(),
                              [](std::byte b) { return b == std::byte{0x7b}; }));
      std::vector<int32_t> row_of(tokens);
      for (int64_t r = 0; r < tokens; ++r) row_of[place[r]] = r;
      const auto rounded = [&](const float* row, int64_t count) {
        std::vector<float> wide(row, row + count);
        const int64_t dim = count / shape.kv_heads;
        for (int h = 0; h < shape.kv_heads; ++h) RoundToStorage(dtype, wide.data() + h * dim, dim);
        return wide;
      };
      for (int page = 0; page < pages; ++page) {
        const int count = page == 2 ? shape.page_tokens - 5 : shape.page_tokens;
        TestMatrix read_k(count, k.cols(), 2);
        TestMatrix read_v(count, v.cols());
        ASSERT_TRUE(table()
                        .kv_read(*stream, {shape, memory.data() + page * page_bytes, count,
                                           read_k.view(), read_v.view()})
                        .ok());
        EXPECT_TRUE(read_k.PaddingUntouched() && read_v.PaddingUntouched());
        for (int t = 0; t < count; ++t) {
          const int32_t row = row_of[page * shape.page_tokens + t];
          ASSERT_TRUE(SameBits(read_k.row(t), rounded(k.row(row), k.cols()).data(), k.cols()));
          ASSERT_TRUE(SameBits(read_v.row(t), rounded(v.row(row), v.cols()).data(), v.cols()));
        }
      }
    }
  }
}

// Storage rounds as kernels/base/dtype.h says, for every float32 exponent and hard cases.
TEST_P(KvTest, StorageRoundsLikeTheConversions) {
  std::mt19937 random(41);
  std::vector<float> values;
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (const uint32_t mantissa :
         {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0x7fffffu, 0x3000u, 0x18000u,
          static_cast<uint32_t>(random() & 0x7fffffu)}) {
      for (const uint32_t sign : {0u, 0x80000000u}) {
        values.push_back(std::bit_cast<float>(sign | exponent << 23 | mantissa));
      }
    }
  }
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(-std::numeric_limits<float>::infinity());
  values.push_back(std::nanf(""));
  const int dim = 64;
  values.resize((values.size() + dim - 1) / dim * dim, 1.0f);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2}) {
    SCOPED_TRACE(DTypeName(dtype));
    const KvPageShape shape{16, 1, dim, dim, dtype};
    std::vector<std::byte> page(table().kv_page_bytes(shape));
    for (size_t begin = 0; begin < values.size(); begin += dim) {
      std::byte* pages[] = {page.data()};
      const int32_t slots[] = {5};
      const ConstMatrixView row{values.data() + begin, 1, dim, dim};
      ASSERT_TRUE(table().kv_append(*MakeStream(table(), 1), {shape, row, row, pages, slots}).ok());
      TestMatrix k(6, dim);
      TestMatrix v(6, dim);
      ASSERT_TRUE(table()
                      .kv_read(*MakeStream(table(), 1), {shape, page.data(), 6, k.view(), v.view()})
                      .ok());
      for (int d = 0; d < dim; ++d) {
        const float value = values[begin + d];
        float expected = value;
        RoundToStorage(dtype, &expected, 1);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(k.row(5)[d]) && std::isnan(v.row(5)[d]));
        } else {
          ASSERT_TRUE(SameBits(&k.row(5)[d], &expected, 1)) << value;
          ASSERT_TRUE(SameBits(&v.row(5)[d], &expected, 1)) << value;
        }
      }
    }
  }
}

ANNULUS_FOR_EVERY_TABLE(KvTest);

}  // namespace
}  // namespace annulus::testing
