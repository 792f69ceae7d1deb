#include "kernels/cpu/register.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus {
namespace {

TEST(RegisterCpuKernels, TheReferenceIsAlwaysThereAndLast) {
  const std::vector<const OpTable*> tables = testing::CpuRegistry().Available("cpu");
  ASSERT_FALSE(tables.empty());
  EXPECT_EQ(tables.back()->name, "cpu/reference");
}

TEST(RegisterCpuKernels, TablesAreComplete) {
  for (const OpTable* table : testing::CpuRegistry().Available("cpu")) {
    SCOPED_TRACE(table->name);
    EXPECT_NE(table->kv_page_bytes, nullptr);
    EXPECT_NE(table->matrix_bytes, nullptr);
    EXPECT_NE(table->pack_rows, nullptr);
    EXPECT_NE(table->linear, nullptr);
    EXPECT_NE(table->embed, nullptr);
    EXPECT_NE(table->norm, nullptr);
    EXPECT_NE(table->gated_mul, nullptr);
    EXPECT_NE(table->rope_table, nullptr);
    EXPECT_NE(table->rope, nullptr);
    EXPECT_NE(table->kv_append, nullptr);
    EXPECT_NE(table->kv_read, nullptr);
    EXPECT_NE(table->attention, nullptr);
    EXPECT_NE(table->merge_state, nullptr);
  }
}

TEST(RegisterCpuKernels, SelectServesEveryDTypeAndNamesTheReference) {
  for (const DType weights : testing::kCpuDTypes) {
    for (const DType kv : testing::kKvDTypes) {
      KernelRequirements required;
      required.weights_dtype = weights;
      required.kv_dtype = kv;
      required.k_dim = 80;
      required.v_dim = 3;
      EXPECT_TRUE(testing::CpuRegistry().Select(required).ok());
      required.implementation = "cpu/reference";
      EXPECT_EQ(*testing::CpuRegistry().Select(required), &testing::Reference());
    }
  }
}

TEST(RegisterCpuKernels, UnsupportedDimensionIsRefused) {
  KernelRequirements required;
  required.k_dim = required.v_dim = 1025;
  EXPECT_THAT(std::string(testing::CpuRegistry().Select(required).status().message()),
              ::testing::HasSubstr("cpu/reference misses head_dim 1025"));
}

}  // namespace
}  // namespace annulus
