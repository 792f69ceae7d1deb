#include "engine/memory/buffer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "engine/memory/align.h"
#include "tests/support/fake_backend.h"

namespace annulus {
namespace {

using testing::FakeBackend;
using ::testing::HasSubstr;

constexpr size_t kChunk = 4096;

class BufferPoolTest : public ::testing::Test {
 protected:
  DeviceBuffer Take(size_t bytes, Lifetime lifetime = Lifetime::kStep) {
    absl::StatusOr<DeviceBuffer> buffer = pool_.Allocate(bytes, lifetime);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_TRUE(pool_.CheckInvariants().ok()) << pool_.CheckInvariants();
    return buffer.ok() ? *std::move(buffer) : DeviceBuffer();
  }

  void ExpectRefused(size_t bytes) {
    const absl::StatusOr<DeviceBuffer> buffer = pool_.Allocate(bytes, Lifetime::kStep);
    EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(pool_.CheckInvariants().ok()) << pool_.CheckInvariants();
  }

  FakeBackend backend_;
  BufferPool pool_{backend_, {.limit_bytes = 4 * kChunk, .chunk_bytes = kChunk, .name = "rank0"}};
};

TEST_F(BufferPoolTest, GivesAlignedWritableMemoryOfTheSizeAskedFor) {
  for (size_t bytes : {1, 63, 64, 65, 1000, 4096, 5000}) {
    DeviceBuffer buffer = Take(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kMemoryAlignment, 0u);
    EXPECT_TRUE(pool_.host_accessible());
    std::memset(buffer.data(), 0xab, bytes);
  }
}

TEST_F(BufferPoolTest, ZeroBytesNeedNothing) {
  EXPECT_EQ(Take(0).data(), nullptr);
  EXPECT_EQ(backend_.calls(), 0);
}

TEST_F(BufferPoolTest, MovingKeepsOneOwner) {
  DeviceBuffer first = Take(100);
  std::byte* data = first.data();
  DeviceBuffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  DeviceBuffer third = Take(200);
  third = std::move(second);
  EXPECT_EQ(pool_.Stats().held, 128u);
  third.Reset();
  third.Reset();
  EXPECT_EQ(pool_.Stats().held, 0u);
}

TEST_F(BufferPoolTest, SplitsAChunkAndCoalescesNeighboursInAnyOrderOfRelease) {
  for (const std::vector<int>& order :
       {std::vector{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
    std::vector<DeviceBuffer> buffers;
    for (int i = 0; i < 3; ++i) buffers.push_back(Take(1024));
    EXPECT_EQ(pool_.Stats().chunks, 1);
    for (int i : order) {
      buffers[i].Reset();
      EXPECT_TRUE(pool_.CheckInvariants().ok()) << pool_.CheckInvariants();
    }
    EXPECT_EQ(pool_.Stats().largest_free, kChunk);
    EXPECT_EQ(pool_.Stats().fragmentation_ratio(), 0);
  }
}

TEST_F(BufferPoolTest, TakesTheBestFit) {
  DeviceBuffer wide = Take(960);
  DeviceBuffer wall1 = Take(64);
  DeviceBuffer narrow = Take(576);
  DeviceBuffer wall2 = Take(64);
  std::byte* narrow_data = narrow.data();
  wide.Reset();
  narrow.Reset();
  // 960 and 576, of one bucket, are free beside the chunk's rest.
  EXPECT_EQ(Take(520).data(), narrow_data);
}

TEST_F(BufferPoolTest, ReportsFragmentation) {
  std::vector<DeviceBuffer> buffers;
  for (size_t i = 0; i < kChunk / 64; ++i) buffers.push_back(Take(64));
  for (size_t i = 0; i < buffers.size(); i += 2) buffers[i].Reset();
  const BufferPoolStats stats = pool_.Stats();
  EXPECT_EQ(stats.free, kChunk / 2);
  EXPECT_EQ(stats.largest_free, 64u);
  EXPECT_DOUBLE_EQ(stats.fragmentation_ratio(), 1 - 64.0 / (kChunk / 2));
}

TEST_F(BufferPoolTest, CountsByLifetimeAndKeepsHighWater) {
  DeviceBuffer weights = Take(1000, Lifetime::kWeights);
  DeviceBuffer step = Take(64, Lifetime::kStep);
  BufferPoolStats stats = pool_.Stats();
  EXPECT_EQ(stats.held_by_lifetime[static_cast<size_t>(Lifetime::kWeights)], 1024u);
  EXPECT_EQ(stats.held_by_lifetime[static_cast<size_t>(Lifetime::kStep)], 64u);
  EXPECT_EQ(stats.held, 1088u);
  weights.Reset();
  stats = pool_.Stats();
  EXPECT_EQ(stats.held, 64u);
  EXPECT_EQ(stats.high_water_held, 1088u);
  EXPECT_EQ(stats.high_water_total, stats.total);
}

TEST_F(BufferPoolTest, LifetimesUseDifferentChunksWhileThereIsRoom) {
  DeviceBuffer weights = Take(64, Lifetime::kWeights);
  DeviceBuffer step = Take(64, Lifetime::kStep);
  EXPECT_EQ(pool_.Stats().chunks, 2);
  step.Reset();
  EXPECT_EQ(pool_.Trim(), kChunk);
}

TEST_F(BufferPoolTest, LifetimesShareChunksUnderPressure) {
  DeviceBuffer weights = Take(64, Lifetime::kWeights);
  DeviceBuffer pages = Take(3 * kChunk, Lifetime::kPages);
  EXPECT_EQ(pool_.Stats().total, 4 * kChunk);
  DeviceBuffer step = Take(kChunk - 64, Lifetime::kStep);
  EXPECT_EQ(pool_.Stats().free, 0u);
}

TEST_F(BufferPoolTest, LargeRequestsGetAChunkOfTheirSize) {
  DeviceBuffer buffer = Take(3 * kChunk + 1);
  EXPECT_EQ(pool_.Stats().total, 3 * kChunk + 64);
  EXPECT_EQ(backend_.bytes_out(), 3 * kChunk + 64);
}

TEST_F(BufferPoolTest, UsesTheWholeLimitAndNoMore) {
  DeviceBuffer large = Take(4 * kChunk - 128);
  DeviceBuffer small = Take(128);
  EXPECT_EQ(pool_.Stats().total, 4 * kChunk);
  ExpectRefused(1);
}

TEST_F(BufferPoolTest, TrimsBeforeItRefuses) {
  Take(3 * kChunk).Reset();
  DeviceBuffer kept = Take(2 * kChunk, Lifetime::kWeights);
  EXPECT_EQ(pool_.Stats().trims, 1);
  EXPECT_EQ(pool_.Stats().trimmed_bytes, 3 * kChunk);
  EXPECT_EQ(backend_.bytes_out(), 2 * kChunk);
}

TEST_F(BufferPoolTest, RefusalNamesThePoolAndTheNumbers) {
  DeviceBuffer held = Take(1000);
  const absl::Status status = pool_.Allocate(9 * kChunk, Lifetime::kPages).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part : {"rank0", "36864", "kv", "1024 bytes are held", "16384"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  EXPECT_EQ(pool_.Stats().refusals, 1);
}

TEST_F(BufferPoolTest, ARefusalOfTheBackendSaysWhy) {
  backend_.RefuseAbove(100);
  const absl::Status status = pool_.Allocate(kChunk, Lifetime::kPages).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part : {"rank0", "fake: no 4096 bytes"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  EXPECT_EQ(std::string(status.message()).find("raise the limit"), std::string::npos);
}

TEST_F(BufferPoolTest, AbsurdSizesAreRefused) {
  ExpectRefused(std::numeric_limits<size_t>::max());
  ExpectRefused(std::numeric_limits<size_t>::max() - 62);
  ExpectRefused(4 * kChunk + 1);
}

TEST_F(BufferPoolTest, ABackendThatRefusesAChunkIsAskedForTheBareRequest) {
  backend_.RefuseAbove(kChunk - 64);
  DeviceBuffer buffer = Take(100);
  EXPECT_EQ(pool_.Stats().total, 128u);
}

TEST_F(BufferPoolTest, SurvivesABackendThatRefusesEverything) {
  backend_.RefuseAbove(0);
  ExpectRefused(100);
  backend_.RefuseNothing();
  Take(100);
}

TEST_F(BufferPoolTest, TrimGivesBackOnlyWhollyFreeChunks) {
  DeviceBuffer kept = Take(64);
  DeviceBuffer freed = Take(kChunk);
  freed.Reset();
  EXPECT_EQ(pool_.Trim(), kChunk);
  EXPECT_EQ(pool_.Trim(), 0u);
  EXPECT_EQ(pool_.Stats().trims, 1);
  EXPECT_EQ(backend_.bytes_out(), kChunk);
}

TEST(BufferPoolLimits, AnOddLimitIsNeverPassed) {
  FakeBackend backend;
  BufferPool pool(backend, {.limit_bytes = 1000, .chunk_bytes = 300, .name = "odd"});
  std::vector<DeviceBuffer> buffers;
  for (absl::StatusOr<DeviceBuffer> buffer = pool.Allocate(64, Lifetime::kStep); buffer.ok();
       buffer = pool.Allocate(64, Lifetime::kStep)) {
    buffers.push_back(*std::move(buffer));
  }
  EXPECT_EQ(buffers.size(), 15u);
  EXPECT_LE(backend.bytes_out(), 1000u);
}

TEST(BufferPoolDeathTest, EndingBeforeABufferIsABug) {
  FakeBackend backend;
  EXPECT_DEATH(
      {
        DeviceBuffer buffer;
        BufferPool pool(backend, {.limit_bytes = kChunk, .name = "short"});
        buffer = *pool.Allocate(10, Lifetime::kStep);
      },
      "pool 'short' ends with 64 bytes held");
}

TEST(BufferPoolThreads, BuffersMayBeTakenAndEndedOnAnyThread) {
  FakeBackend backend;
  BufferPool pool(backend, {.limit_bytes = 16 * kChunk, .chunk_bytes = kChunk, .name = "shared"});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      std::vector<DeviceBuffer> buffers;
      for (int i = 0; i < 2000; ++i) {
        auto buffer = pool.Allocate(1 + (i * 37 + t * 101) % 3000, static_cast<Lifetime>(i % 4));
        if (buffer.ok()) {
          std::memset(buffer->data(), t, buffer->size());
          buffers.push_back(*std::move(buffer));
        }
        if (buffers.size() > 8 || !buffer.ok()) buffers.clear();
        if (i % 97 == 0) pool.Trim();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(pool.CheckInvariants().ok()) << pool.CheckInvariants();
  EXPECT_EQ(pool.Stats().held, 0u);
  pool.Trim();
  EXPECT_EQ(backend.bytes_out(), 0u);
}

}  // namespace
}  // namespace annulus
