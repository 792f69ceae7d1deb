#include "engine/sparse/pattern_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace annulus {
namespace {

AttentionPolicy Window(int32_t window) {
  AttentionPolicy policy;
  policy.kind = PolicyKind::kWindow;
  policy.window = window;
  return policy;
}

TEST(PatternCacheTest, LayersShareOneList) {
  PatternCache cache(1 << 24);
  // 40 layers of a prompt in 8 chunks: one list a chunk.
  for (int32_t chunk = 0; chunk < 8; ++chunk) {
    for (int layer = 0; layer < 40; ++layer) {
      const auto pattern = cache.Get(Window(4096), PatternShape{4, chunk * 32, 32});
      EXPECT_EQ(pattern->shape, (PatternShape{4, chunk * 32, 32}));
    }
  }
  const PatternCache::Counters counters = cache.counters();
  EXPECT_EQ(counters.misses, 8u);
  EXPECT_EQ(counters.hits, 8u * 39);
  EXPECT_GT(static_cast<double>(counters.hits) / (counters.hits + counters.misses), 0.97);
}

TEST(PatternCacheTest, PoliciesAndShapesAreKeptApart) {
  PatternCache cache(1 << 24);
  const auto a = cache.Get(Window(64), PatternShape{1, 8, 4});
  const auto b = cache.Get(Window(128), PatternShape{1, 8, 4});
  const auto c = cache.Get(Window(64), PatternShape{1, 8, 5});
  EXPECT_NE(a->chosen, b->chosen);
  EXPECT_NE(a->chosen, c->chosen);
  EXPECT_EQ(cache.Get(Window(64), PatternShape{1, 8, 4}), a);
}

TEST(PatternCacheTest, StaysWithinItsBytesAndForgetsTheOldest) {
  const size_t one = BuildBlockPattern(Window(4096), PatternShape{1, 100, 10}).bytes();
  PatternCache cache(3 * one);
  for (int32_t first = 100; first < 200; first += 10) {
    cache.Get(Window(4096), PatternShape{1, first, 10});
    EXPECT_LE(cache.counters().bytes, 3 * one);
  }
  EXPECT_EQ(cache.counters().evictions, 7u);
  cache.Get(Window(4096), PatternShape{1, 190, 10});
  EXPECT_EQ(cache.counters().hits, 1u);
  cache.Get(Window(4096), PatternShape{1, 100, 10});
  EXPECT_EQ(cache.counters().hits, 1u);

  PatternCache none(0);
  EXPECT_EQ(none.Get(Window(64), PatternShape{1, 0, 4})->keys(0, 3).back(), 3);
  EXPECT_EQ(none.counters().bytes, 0u);
}

TEST(PatternCacheTest, ThreadsGetTheSameLists) {
  PatternCache cache(20'000);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, &wrong, t] {
      for (int i = 0; i < 500; ++i) {
        const PatternShape shape{1, (i * 7 + t) % 50, 8};
        const auto pattern = cache.Get(Window(640), shape);
        const BlockPattern fresh = BuildBlockPattern(Window(640), shape);
        if (pattern->chosen != fresh.chosen || pattern->offsets != fresh.offsets) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
  const PatternCache::Counters counters = cache.counters();
  EXPECT_EQ(counters.hits + counters.misses, 2000u);
  EXPECT_LE(counters.bytes, 20'000u);
}

}  // namespace
}  // namespace annulus
