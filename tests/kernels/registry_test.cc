#include "kernels/registry.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

KernelEntry Entry(const std::string& name, int priority) {
  KernelEntry entry;
  entry.ops.name = name;
  entry.backend = "cpu";
  entry.priority = priority;
  entry.weights_dtypes = {DType::kF32, DType::kBF16};
  entry.kv_dtypes = {DType::kF32};
  entry.max_head_dim = 256;
  entry.head_dim_multiple = 8;
  return entry;
}

KernelRequirements Required() {
  KernelRequirements required;
  required.k_dim = 64;
  required.v_dim = 128;
  return required;
}

std::string Message(const KernelRegistry& registry, const KernelRequirements& required) {
  const absl::Status status = registry.Select(required).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  return std::string(status.message());
}

TEST(Registry, ChoosesTheHighestPriorityThatFits) {
  KernelRegistry registry;
  registry.Register(Entry("cpu/slow", 0));
  registry.Register(Entry("cpu/fast", 9));
  registry.Register(Entry("cpu/middle", 5));
  EXPECT_EQ((*registry.Select(Required()))->name, "cpu/fast");
  KernelRequirements named = Required();
  named.implementation = "cpu/slow";
  EXPECT_EQ((*registry.Select(named))->name, "cpu/slow");
}

TEST(Registry, PassesOverWhatDoesNotFit) {
  KernelRegistry registry;
  registry.Register(Entry("cpu/slow", 0));
  KernelEntry fast = Entry("cpu/fast", 9);
  fast.kv_dtypes = {DType::kBF16};
  registry.Register(fast);
  EXPECT_EQ((*registry.Select(Required()))->name, "cpu/slow");
}

TEST(Registry, RefusalSaysRequiredSupportedAndMissing) {
  KernelRegistry registry;
  registry.Register(Entry("cpu/a", 0));
  KernelRequirements required = Required();
  required.weights_dtype = DType::kF16;
  required.kv_dtype = DType::kI8;
  required.k_dim = 512;
  EXPECT_THAT(Message(registry, required),
              AllOf(HasSubstr("required are backend cpu"), HasSubstr("weights f16"),
                    HasSubstr("head_dim 512/128"), HasSubstr("cpu/a misses weights in f16"),
                    HasSubstr("(supported: f32, bf16)"), HasSubstr("keys and values in int8"),
                    HasSubstr("multiples of 8 up to 256")));
}

TEST(Registry, TakesActivationsAsTheyAreServed) {
  KernelRegistry registry;
  KernelEntry entry = Entry("cpu/a", 0);
  entry.weights_dtypes = {DType::kI8};
  entry.activations = {Activations::kFloat, Activations::kInt8};
  registry.Register(entry);
  KernelRequirements required = Required();
  required.weights_dtype = DType::kI8;
  required.activations = Activations::kInt8;
  EXPECT_TRUE(registry.Select(required).ok());
  required.activations = Activations::kFp8;
  EXPECT_THAT(Message(registry, required),
              AllOf(HasSubstr("activations fp8_e4m3, "),
                    HasSubstr("cpu/a misses activations in fp8_e4m3 (supported: float, int8)")));
}

TEST(Registry, RefusalOfOddHeadDim) {
  KernelRegistry registry;
  registry.Register(Entry("cpu/a", 0));
  KernelRequirements required = Required();
  required.v_dim = 60;
  EXPECT_THAT(Message(registry, required), HasSubstr("head_dim 60 (supported: multiples of 8"));
  required.v_dim = 0;
  EXPECT_THAT(Message(registry, required), HasSubstr("head_dim 0"));
}

TEST(Registry, RefusalOfAnUnknownName) {
  KernelRegistry registry;
  registry.Register(Entry("cpu/a", 0));
  KernelRequirements required = Required();
  required.implementation = "cpu/b";
  EXPECT_THAT(Message(registry, required),
              AllOf(HasSubstr("implementation cpu/b"), HasSubstr("no implementation of that name"),
                    Not(HasSubstr("cpu/a"))));
  required = Required();
  required.backend = "cuda";
  EXPECT_THAT(Message(registry, required), HasSubstr("backend cuda"));
}

TEST(Registry, UnavailableEntriesAreNeverChosen) {
  KernelRegistry registry;
  KernelEntry fast = Entry("cpu/fast", 9);
  fast.available = false;
  fast.unavailable_reason = "the processor instructions AVX512F";
  registry.Register(fast);
  EXPECT_THAT(Message(registry, Required()),
              HasSubstr("cpu/fast misses the processor instructions AVX512F"));
  EXPECT_TRUE(registry.Available("cpu").empty());
}

TEST(Registry, AvailableIsFastestFirstAndByBackend) {
  KernelRegistry registry;
  registry.Register(Entry("cpu/slow", 0));
  registry.Register(Entry("cpu/fast", 9));
  KernelEntry other = Entry("cuda/sm90", 99);
  other.backend = "cuda";
  registry.Register(other);
  std::vector<std::string> names;
  for (const OpTable* table : registry.Available("cpu")) names.push_back(table->name);
  EXPECT_THAT(names, ::testing::ElementsAre("cpu/fast", "cpu/slow"));
}

TEST(Registry, TablesStayWhereTheyAre) {
  KernelRegistry registry;
  registry.Register(Entry("cpu/first", 1));
  const OpTable* first = *registry.Select(Required());
  for (int i = 0; i < 100; ++i) registry.Register(Entry("cpu/other", 0));
  EXPECT_EQ(first, *registry.Select(Required()));
  EXPECT_EQ(first->name, "cpu/first");
}

}  // namespace
}  // namespace annulus
