#include "engine/memory/step_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/memory/poison.h"
#include "tests/engine/memory/property.h"
#include "tests/support/fake_backend.h"

namespace annulus {
namespace {

using testing::Below;
using testing::FakeBackend;
using ::testing::HasSubstr;
using testing::PropertyRun;

class StepArenaTest : public ::testing::Test {
 protected:
  FakeBackend backend_;
  BufferPool pool_{backend_, {.limit_bytes = 1 << 16, .name = "rank0"}};
  StepArena arena_{*pool_.Allocate(4096, Lifetime::kStep), pool_.host_accessible()};
};

TEST_F(StepArenaTest, GivesAlignedSpansThatDoNotOverlap) {
  const std::span<float> a = *arena_.Take<float>(3);
  const std::span<int64_t> b = *arena_.Take<int64_t>(9);
  EXPECT_EQ(a.size(), 3u);
  EXPECT_EQ(b.size(), 9u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % kMemoryAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % kMemoryAlignment, 0u);
  std::fill(b.begin(), b.end(), -1);
  std::fill(a.begin(), a.end(), 1.0f);
  EXPECT_EQ(b[0], -1);
  EXPECT_EQ(arena_.used(), 64u + 128u);
  EXPECT_EQ(arena_.used(), StepArena::BytesFor<float>(3) + StepArena::BytesFor<int64_t>(9));
}

TEST_F(StepArenaTest, FillsUpExactlyAndThenRefusesWithTheNumbers) {
  EXPECT_TRUE(arena_.Take<float>(512).ok());
  EXPECT_TRUE(arena_.Take<std::byte>(2048 - 63).ok());
  EXPECT_EQ(arena_.used(), arena_.capacity());
  const absl::Status status = arena_.Take<float>(5).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("5 values of 4 bytes, 4096 of 4096"));
  EXPECT_TRUE(arena_.Take<float>(0).ok());
}

TEST_F(StepArenaTest, AbsurdCountsAreRefused) {
  EXPECT_FALSE(arena_.Take<float>(std::numeric_limits<size_t>::max()).ok());
  EXPECT_FALSE(arena_.Take<float>((size_t{1} << 62) + 1).ok());
  EXPECT_EQ(arena_.used(), 0u);
}

TEST_F(StepArenaTest, ResetStartsOverAndHighWaterStays) {
  const float* first = arena_.Take<float>(100)->data();
  arena_.Reset();
  EXPECT_EQ(arena_.used(), 0u);
  EXPECT_EQ(arena_.high_water(), 448u);
  EXPECT_EQ(arena_.Take<float>(1)->data(), first);
  EXPECT_EQ(arena_.high_water(), 448u);
}

TEST_F(StepArenaTest, ScopesNest) {
  const std::span<int32_t> outer = *arena_.Take<int32_t>(16);
  outer[15] = 5;
  const StepArena::Position mark = arena_.Mark();
  const std::span<int32_t> inner = *arena_.Take<int32_t>(16);
  arena_.Rewind(mark);
  const std::span<int32_t> again = *arena_.Take<int32_t>(16);
  EXPECT_EQ(again.data(), inner.data());
  EXPECT_EQ(outer[15], 5);
}

TEST_F(StepArenaTest, RewindingForwardsIsABug) {
  EXPECT_DEATH(arena_.Rewind({64}), "rewind to 64 bytes, used are 0");
}

TEST_F(StepArenaTest, BytesThatAreNotTakenTrapUnderTheSanitizer) {
  if (!kAddressSanitizer) GTEST_SKIP() << "needs AddressSanitizer";
  volatile float* data = arena_.Take<float>(10)->data();
  data[9] = 1;
  EXPECT_DEATH(data[10] = 1, "use-after-poison");
  arena_.Reset();
  EXPECT_DEATH(data[0] = 1, "use-after-poison");
}

TEST(StepArena, AnEmptyArenaGivesOnlyNothing) {
  StepArena arena{DeviceBuffer(), /*host_accessible=*/true};
  EXPECT_TRUE(arena.Take<float>(0).ok());
  EXPECT_FALSE(arena.Take<float>(1).ok());
}

TEST_F(StepArenaTest, RandomScopesKeepWhatIsOutside) {
  const PropertyRun run(100'000);
  std::mt19937_64 random(run.seed);
  struct Scope {
    StepArena::Position position;
    std::vector<std::span<uint32_t>> taken;
  };
  std::vector<Scope> scopes(1);
  for (int64_t i = 0; i < run.operations; ++i) {
    const size_t dice = Below(random, 10);
    if (dice < 6) {
      const auto taken = arena_.Take<uint32_t>(1 + Below(random, 60));
      if (!taken.ok()) continue;
      std::fill(taken->begin(), taken->end(), static_cast<uint32_t>(taken->size()));
      scopes.back().taken.push_back(*taken);
    } else if (dice < 8) {
      scopes.push_back({.position = arena_.Mark(), .taken = {}});
    } else {
      for (const std::span<uint32_t> span : scopes.back().taken) {
        ASSERT_TRUE(std::all_of(span.begin(), span.end(),
                                [&span](uint32_t value) { return value == span.size(); }));
      }
      arena_.Rewind(scopes.back().position);
      scopes.pop_back();
      if (scopes.empty()) scopes.resize(1);
    }
    ASSERT_LE(arena_.used(), arena_.high_water());
    ASSERT_LE(arena_.high_water(), arena_.capacity());
  }
}

}  // namespace
}  // namespace annulus
