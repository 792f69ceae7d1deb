#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <vector>

#include "engine/memory/align.h"
#include "engine/memory/buffer_pool.h"
#include "tests/engine/memory/property.h"
#include "tests/support/fake_backend.h"

namespace annulus {
namespace {

using testing::Below;
using testing::FakeBackend;
using testing::PropertyRun;

constexpr size_t kPropertyChunk = 1 << 14;
constexpr size_t kLimit = 8 * kPropertyChunk + 192;

// A pool under random operations beside a plain model of what it must hold.
class PoolUnderTest {
 public:
  explicit PoolUnderTest(uint64_t seed) : random_(seed) {}

  void Step() {
    const size_t dice = Below(random_, 100);
    if (dice < 52) {
      Allocate();
    } else if (dice < 96) {
      Release();
    } else if (dice < 98) {
      pool_.Trim();
    } else if (dice == 98) {
      backend_.RefuseAbove(Below(random_, 2 * kPropertyChunk));
    } else {
      backend_.RefuseNothing();
    }
  }

  // Cheap: the figures against the model.
  void CheckFigures() {
    const BufferPoolStats stats = pool_.Stats();
    ASSERT_EQ(stats.free + stats.held, stats.total);
    ASSERT_LE(stats.total, kLimit);
    ASSERT_EQ(stats.total, backend_.bytes_out());
    ASSERT_EQ(stats.held_by_lifetime, held_);
    ASSERT_LE(stats.largest_free, stats.free);
    ASSERT_GE(stats.high_water_total, stats.total);
  }

  void CheckBlocks() { ASSERT_TRUE(pool_.CheckInvariants().ok()) << pool_.CheckInvariants(); }

  void ReleaseAll() {
    EXPECT_GT(pool_.Stats().refusals, 0) << "the run never met the bound";
    EXPECT_GT(pool_.Stats().trims, 0);
    while (!buffers_.empty()) Release();
    ASSERT_EQ(pool_.Stats().held, 0u);
    CheckBlocks();
    pool_.Trim();
    ASSERT_EQ(pool_.Stats().total, 0u);
    ASSERT_EQ(backend_.bytes_out(), 0u);
  }

 private:
  struct Held {
    DeviceBuffer buffer;
    Lifetime lifetime;
    std::byte tag;
  };

  void Allocate() {
    // Sizes over all scales, up to twice a chunk.
    const size_t bytes = 1 + Below(random_, size_t{1} << (1 + Below(random_, 15)));
    const auto lifetime = static_cast<Lifetime>(Below(random_, kLifetimeCount));
    absl::StatusOr<DeviceBuffer> buffer = pool_.Allocate(bytes, lifetime);
    if (!buffer.ok()) {
      const BufferPoolStats stats = pool_.Stats();
      ASSERT_LT(stats.largest_free, AlignUp(bytes)) << "refused what was free";
      ASSERT_TRUE(AlignUp(bytes) > stats.limit - stats.total ||
                  AlignUp(bytes) > backend_.largest_allowed())
          << "refused below the bound";
      return;
    }
    std::byte* begin = buffer->data();
    const auto next = ranges_.lower_bound(begin);
    ASSERT_TRUE(next == ranges_.end() || begin + bytes <= next->first) << "overlap";
    ASSERT_TRUE(next == ranges_.begin() ||
                std::prev(next)->first + std::prev(next)->second <= begin)
        << "overlap";
    ranges_[begin] = bytes;
    held_[static_cast<size_t>(lifetime)] += AlignUp(bytes);
    const auto tag = static_cast<std::byte>(Below(random_, 256));
    begin[0] = begin[bytes - 1] = tag;
    buffers_.push_back({*std::move(buffer), lifetime, tag});
  }

  void Release() {
    if (buffers_.empty()) return;
    std::swap(buffers_[Below(random_, buffers_.size())], buffers_.back());
    Held& held = buffers_.back();
    ASSERT_EQ(held.buffer.data()[0], held.tag);
    ASSERT_EQ(held.buffer.data()[held.buffer.size() - 1], held.tag);
    ranges_.erase(held.buffer.data());
    held_[static_cast<size_t>(held.lifetime)] -= AlignUp(held.buffer.size());
    buffers_.pop_back();
  }

  std::mt19937_64 random_;
  FakeBackend backend_;
  BufferPool pool_{backend_,
                   {.limit_bytes = kLimit, .chunk_bytes = kPropertyChunk, .name = "property"}};
  std::vector<Held> buffers_;
  std::map<std::byte*, size_t> ranges_;
  std::array<size_t, kLifetimeCount> held_{};
};

TEST(BufferPoolProperty, BooksAgreeAfterEveryRandomOperation) {
  const PropertyRun run(100'000);
  PoolUnderTest pool(run.seed);
  for (int64_t i = 0; i < run.operations; ++i) {
    SCOPED_TRACE(i);
    pool.Step();
    pool.CheckFigures();
    // The walk is linear, so a long run takes it less often.
    if (i < 100'000 || i % 16 == 0) pool.CheckBlocks();
    if (HasFatalFailure()) return;
  }
  pool.ReleaseAll();
}

}  // namespace
}  // namespace annulus
