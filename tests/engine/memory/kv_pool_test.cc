#include "engine/memory/kv_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/base/dtype.h"
#include "tests/support/fake_backend.h"

namespace annulus {
namespace {

using testing::FakeBackend;
using ::testing::HasSubstr;

// 3 layers of 1000 bytes: 1024 apart, 3072 bytes a page.
KvGeometry Geometry() { return {.shape = {}, .layers_per_page = 3, .layer_page_bytes = 1000}; }

struct Fixture {
  explicit Fixture(bool host_accessible = true) : backend(host_accessible) {}
  std::unique_ptr<KvPool> Create(size_t bytes, bool poison) {
    auto created = KvPool::Create(pool, Geometry(), bytes, poison);
    EXPECT_TRUE(created.ok()) << created.status();
    return *std::move(created);
  }
  FakeBackend backend;
  BufferPool pool{backend, {.limit_bytes = 1 << 16, .name = "rank0"}};
};

// A book of the pool's pages, whose owners take and free one page each.
class Pages {
 public:
  explicit Pages(KvPool& kv)
      : book_({kv.page_count()}, {0},
              {.on_take = [&kv](const PageBook::Event& page) { kv.OnTake(page); },
               .on_free = [&kv](const PageBook::Event& page) { kv.OnFree(page); }}) {}

  int32_t Take(uint64_t request) {
    const PageOwner owner = OwnerOfRequest(request);
    book_.Open(owner, TenantId());
    book_.Reserve(owner, 0, 1);
    return book_.reserve(owner, 0).back();
  }
  void Free(uint64_t request) { book_.Release(OwnerOfRequest(request)); }
  void TakeAndFree(uint64_t request) {
    Take(request);
    Free(request);
  }
  const PageBook& book() const { return book_; }

 private:
  PageBook book_;
};

TEST(KvPool, HoldsAsManyPagesAsFit) {
  Fixture fixture;
  auto kv = fixture.Create(4 * 3072 + 3071, false);
  EXPECT_EQ(kv->page_count(), 4);
  EXPECT_EQ(kv->bytes_total(), 4u * 3072);
  EXPECT_EQ(fixture.pool.Stats().held_by_lifetime[static_cast<size_t>(Lifetime::kPages)],
            4u * 3072);
}

TEST(KvPool, LayersOfPagesAreApartAndAligned) {
  Fixture fixture;
  auto kv = fixture.Create(4 * 3072, false);
  std::vector<std::byte*> parts;
  for (int32_t page = 0; page < 4; ++page) {
    for (int layer = 0; layer < 3; ++layer) parts.push_back(kv->LayerPage(page, layer));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(parts[i]) % kMemoryAlignment, 0u);
    EXPECT_EQ(parts[i], parts[0] + 1024 * i);
  }
}

TEST(KvPool, TooLittleMemoryIsRefusedWithTheNumbers) {
  Fixture fixture;
  absl::Status status = KvPool::Create(fixture.pool, Geometry(), 3071).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part : {"rank0", "3072", "3071"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  status = KvPool::Create(fixture.pool, Geometry(), 1 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(KvPool, AnEmptyGeometryIsRefused) {
  Fixture fixture;
  KvGeometry geometry = Geometry();
  geometry.layers_per_page = 0;
  EXPECT_EQ(KvPool::Create(fixture.pool, geometry, 1 << 14).status().code(),
            absl::StatusCode::kInvalidArgument);
  geometry = Geometry();
  geometry.layer_page_bytes = 0;
  EXPECT_EQ(KvPool::Create(fixture.pool, geometry, 1 << 14).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(KvPool, AFreedPageTellsItsOwnerAndReadsAsNan) {
  Fixture fixture;
  auto kv = fixture.Create(2 * 3072, true);
  Pages pages(*kv);
  const int32_t id = pages.Take(42);
  for (int layer = 0; layer < 3; ++layer) std::memset(kv->LayerPage(id, layer), 0, 1000);
  pages.Free(42);

  AllowAccess(kv->LayerPage(id, 0), 3072);
  for (int layer = 0; layer < 3; ++layer) {
    PoisonHeader header;
    std::memcpy(&header, kv->LayerPage(id, layer), sizeof(header));
    EXPECT_EQ(header, (PoisonHeader{.owner = OwnerOfRequest(42), .generation = 1, .id = id}));
    const std::byte* body = kv->LayerPage(id, layer) + sizeof(PoisonHeader);
    float f32;
    std::memcpy(&f32, body, sizeof(f32));
    EXPECT_TRUE(std::isnan(f32));
    BFloat16 bf16;
    std::memcpy(&bf16, body, sizeof(bf16));
    EXPECT_TRUE(std::isnan(ToFloat(bf16)));
    Float16 f16;
    std::memcpy(&f16, body, sizeof(f16));
    EXPECT_TRUE(std::isnan(ToFloat(f16)));
  }
}

TEST(KvPool, AFreedPageCanBeUsedAgain) {
  Fixture fixture;
  auto kv = fixture.Create(3072, true);
  Pages pages(*kv);
  for (int round = 0; round < 3; ++round) {
    std::memset(kv->LayerPage(pages.Take(round), 2), round, 1000);
    pages.Free(round);
  }
  EXPECT_EQ(pages.book().page({0, 0}).generation, 3u);
}

TEST(KvPool, TheSlabIsWholeAgainForItsNextHolder) {
  Fixture fixture;
  auto kv = fixture.Create(3072, true);
  std::byte* slab = kv->LayerPage(0, 0);
  Pages(*kv).TakeAndFree(1);
  kv.reset();
  DeviceBuffer next = *fixture.pool.Allocate(3072, Lifetime::kPages);
  EXPECT_EQ(next.data(), slab);
  std::memset(next.data(), 1, next.size());
}

TEST(KvPool, MemoryOutOfTheHostsReachIsLeftAlone) {
  Fixture fixture(false);
  auto kv = fixture.Create(3072, true);
  EXPECT_FALSE(kv->poisons());
  // The fake's memory is zeroed, and reachable all the same.
  EXPECT_EQ(kv->LayerPage(0, 0)[0], std::byte{0});
}

TEST(KvPoolDeathTest, AWriteIntoAFreedPageIsFound) {
  Fixture fixture;
  auto kv = fixture.Create(3072, true);
  Pages pages(*kv);
  pages.TakeAndFree(9);
  // As a device would, past the sanitizer.
  AllowAccess(kv->LayerPage(0, 0), 3072);
  kv->LayerPage(0, 1)[999] = std::byte{1};
  EXPECT_DEATH(pages.Take(10), "layer 1 was written after .* request 9");
}

TEST(KvPoolDeathTest, ReadingAFreedPageTrapsUnderTheSanitizer) {
  if (!kAddressSanitizer) GTEST_SKIP() << "needs AddressSanitizer";
  Fixture fixture;
  auto kv = fixture.Create(3072, true);
  Pages(*kv).TakeAndFree(1);
  volatile const std::byte* data = kv->LayerPage(0, 0);
  EXPECT_DEATH({ [[maybe_unused]] const std::byte read = data[100]; }, "use-after-poison");
}

TEST(KvPoolDeathTest, OutOfRangeIsABug) {
  Fixture fixture;
  auto kv = fixture.Create(3072, false);
  EXPECT_DEATH(kv->LayerPage(1, 0), "page 1 of 1");
  EXPECT_DEATH(kv->LayerPage(-1, 0), "page -1 of 1");
  EXPECT_DEATH(kv->LayerPage(0, 3), "layer 3 of 3");
}

}  // namespace
}  // namespace annulus
