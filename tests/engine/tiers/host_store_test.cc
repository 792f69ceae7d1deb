#include "engine/tiers/host_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/sanitizers.h"
#include "tests/engine/tiers/disk_store_fixture.h"
#include "tests/engine/tiers/marks.h"
#include "tests/support/pages_in_memory.h"

namespace annulus {
namespace {

using testing::kFile;
using testing::kPayload;
using testing::MarksOf;
using testing::PayloadOf;

std::unique_ptr<HostStore> MakeHost(int64_t limit) {
  auto store = HostStore::Create(limit, kPayload);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

absl::StatusOr<bool> PutInHost(HostStore& store, const PageMark& mark, int64_t use) {
  const std::vector<std::byte> payload = PayloadOf(mark, kPayload);
  const std::span<const std::byte> all(payload);
  const std::array<std::span<const std::byte>, 2> parts = {all.first(20), all.subspan(20)};
  return store.Put(mark, parts, use);
}

// Whether the page is there; if so, its bytes must be right.
bool FindsInHost(HostStore& store, const PageMark& mark) {
  std::vector<std::byte> read(kPayload);
  const auto got = store.Get(mark, read, store.NextUse());
  if (got.ok()) {
    EXPECT_EQ(read, PayloadOf(mark, kPayload));
    EXPECT_EQ(*got, mark.coverage);
  }
  return got.ok();
}

TEST(HostStoreTest, GivesBackWhatItWasGiven) {
  const auto store = MakeHost(10 * kFile);
  std::vector<PageMark> marks = MarksOf(4);
  marks[1].coverage = 0.5;
  marks[2].group = 1;
  for (const PageMark& mark : marks) EXPECT_EQ(*PutInHost(*store, mark, store->NextUse()), true);
  for (const PageMark& mark : marks) EXPECT_TRUE(FindsInHost(*store, mark));
  EXPECT_EQ(*PutInHost(*store, marks[0], store->NextUse()), false) << "it was there";
  EXPECT_EQ(store->stats().pages, 4);
  EXPECT_EQ(store->stats().bytes, 4 * kFile);
  EXPECT_EQ(store->resident_bytes(), 4 * kFile);
  EXPECT_FALSE(FindsInHost(*store, MarksOf(5)[4]));
  // Of another tenant or model nothing is found, whatever its tokens are.
  EXPECT_FALSE(FindsInHost(*store, MarksOf(1, "stranger")[0]));
  EXPECT_FALSE(FindsInHost(*store, MarksOf(1, "default", 0, "other model")[0]));
  EXPECT_FALSE(HostStore::Create(kFile - 1, kPayload).ok());
}

// Whatever the order of puts, reads, holds, deletions and drops is: never more than the limit, each
// page's own bytes, and all of the room is of use again.
TEST(HostStoreTest, UnderRandomOperationsItsSizeIsNeverExceeded) {
  constexpr int kSlots = 7;
  for (int seed = 0; seed < (kSanitized ? 3 : 20); ++seed) {
    const auto store = MakeHost(kSlots * kFile + 100);
    std::mt19937 random(seed);
    std::vector<PageMark> marks;
    for (const char* tenant : {"one", "two"}) {
      for (PageMark& mark : MarksOf(9, tenant)) {
        mark.documents.Add(std::to_string(marks.size() % 3));
        mark.tenant_bytes = tenant[0] == 'o' ? 3 * kFile : 100 * kFile;
        marks.push_back(std::move(mark));
      }
    }
    std::multiset<size_t> held;
    for (int i = 0; i < 2000; ++i) {
      const size_t at = random() % marks.size();
      PageMark mark = marks[at];
      mark.asked = std::chrono::steady_clock::now();
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
        case 3:
          PutInHost(*store, mark, store->NextUse()).status().IgnoreError();
          break;
        case 4:
          FindsInHost(*store, mark);
          break;
        case 5:
          if (held.size() < 3 && store->Hold(KeyOf(mark))) held.insert(at);
          break;
        case 6:
          if (!held.empty()) {
            store->Release(KeyOf(marks[*held.begin()]));
            held.erase(held.begin());
          }
          break;
        default:
          if (random() % 2 == 0) {
            const std::array<PageKey, 1> keys = {KeyOf(mark)};
            EXPECT_TRUE(store->Distrust(keys).empty());
          } else {
            const auto gone = store->ForgetDocument(mark.tenant, std::to_string(random() % 3),
                                                    CancelFlag::Never());
            ASSERT_TRUE(gone.ok() && gone->pages.empty());
          }
      }
      const PageStore::Stats stats = store->stats();
      ASSERT_LE(stats.bytes, kSlots * kFile);
      ASSERT_EQ(stats.bytes, stats.pages * kFile);
      ASSERT_LE(store->resident_bytes(), kSlots * kFile);
      int64_t own = 0;
      for (const PageMark& each : marks) {
        own += each.tenant == marks[0].tenant && store->Has(KeyOf(each)) ? kFile : 0;
      }
      ASSERT_LE(own, 3 * kFile) << "a tenant has more than it may";
    }
    for (const size_t at : held) store->Release(KeyOf(marks[at]));
    const std::vector<PageMark> last = MarksOf(kSlots, "three", 500);
    const int64_t use = store->NextUse();
    for (const PageMark& mark : last) EXPECT_EQ(*PutInHost(*store, mark, use), true) << seed;
    EXPECT_EQ(store->stats().pages, kSlots);
    EXPECT_EQ(store->stats().rejects, 0);
  }
}

TEST(HostStoreTest, TheLeastRecentlyUsedMakeRoomUnlessTheyAreHeld) {
  const auto store = MakeHost(4 * kFile);
  const std::vector<PageMark> old = MarksOf(2, "default", 100);
  const std::vector<PageMark> used = MarksOf(2, "default", 200);
  const int64_t first = store->NextUse();
  for (const PageMark& mark : old) EXPECT_TRUE(PutInHost(*store, mark, first).ok());
  const int64_t second = store->NextUse();
  for (const PageMark& mark : used) EXPECT_TRUE(PutInHost(*store, mark, second).ok());
  EXPECT_TRUE(store->Hold(KeyOf(old[1])));
  const std::vector<PageMark> more = MarksOf(4, "default", 300);
  const int64_t third = store->NextUse();
  EXPECT_TRUE(store->HasRoom(more[0], kPayload, third));
  EXPECT_FALSE(store->HasRoom(more[0], kPayload, first)) << "all others were used later";
  EXPECT_TRUE(PutInHost(*store, more[0], third).ok());
  EXPECT_TRUE(store->Has(KeyOf(old[1]))) << "it goes on to another store";
  EXPECT_FALSE(store->Has(KeyOf(old[0])));
  EXPECT_TRUE(PutInHost(*store, more[1], third).ok());
  EXPECT_TRUE(PutInHost(*store, more[2], third).ok());
  EXPECT_EQ(PutInHost(*store, more[3], third).status().code(),
            absl::StatusCode::kResourceExhausted);
  store->Release(KeyOf(old[1]));
  EXPECT_TRUE(PutInHost(*store, more[3], third).ok());
  EXPECT_FALSE(store->Has(KeyOf(old[1])));
  EXPECT_FALSE(store->Hold(KeyOf(old[1])));
}

// Its slot would be of no use before the reader is done, so the page would be lost for nothing.
TEST(HostStoreTest, APageThatIsBeingReadMakesNoRoom) {
  constexpr size_t kLarge = 1 << 20;  // a reader does little else than to read it
  const auto store = HostStore::Create(KnownPages::FileBytes(kLarge), kLarge).value();
  const std::vector<PageMark> marks = MarksOf(2);
  const std::array payloads = {PayloadOf(marks[0], kLarge), PayloadOf(marks[1], kLarge)};
  const auto put = [&](size_t page) {
    const std::array<std::span<const std::byte>, 1> parts = {payloads[page]};
    return store->Put(marks[page], parts, store->NextUse()).status();
  };
  std::atomic<bool> ends = false;
  std::atomic<int> reads = 0;
  std::thread reader([&] {
    std::vector<std::byte> read(kLarge);
    while (!ends) reads += store->Get(marks[0], read, /*use=*/0).ok() ? 1 : 0;
  });
  absl::Status full;
  while (full.ok()) {  // until the reader is in the middle of the page
    // Again and again, as a read that missed it may drop it once more.
    for (const int before = reads; reads == before;) EXPECT_TRUE(put(0).ok());
    full = put(1);
  }
  ends = true;
  reader.join();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store->Has(KeyOf(marks[0])));
  EXPECT_TRUE(put(1).ok()) << "nobody reads now";
  EXPECT_FALSE(store->Has(KeyOf(marks[0])));
}

// Memory is no disk, but its bits flip too.
TEST(HostStoreTest, AFlippedBitIsAMiss) {
  const PageMark mark = MarksOf(1)[0];
  const auto store = MakeHost(2 * kFile);
  ASSERT_TRUE(PutInHost(*store, mark, store->NextUse()).ok());
  int64_t flipped = 0;
  for (size_t bit = 0; bit < (kEntryHeaderBytes + kPayload) * 8; bit += kSanitized ? 4701 : 61) {
    // What is left of an earlier test's memory may look like the page too.
    ASSERT_GE(testing::FlipPagesInMemory(0, 1, bit), 1) << "bit " << bit;
    ASSERT_FALSE(FindsInHost(*store, mark)) << "bit " << bit;
    EXPECT_EQ(store->stats().pages, 0) << "a broken page stays";
    // The slot has the broken page until it is used again.
    ASSERT_TRUE(PutInHost(*store, mark, store->NextUse()).ok());
    ASSERT_TRUE(FindsInHost(*store, mark));
    ++flipped;
  }
  EXPECT_EQ(store->stats().rejects, flipped);
  EXPECT_TRUE(store->on());
}

TEST(HostStoreTest, ADeletedDocumentTakesItsPagesAlong) {
  const auto store = MakeHost(10 * kFile);
  std::vector<PageMark> marks = MarksOf(6);
  for (size_t i = 0; i < marks.size(); ++i) {
    if (i >= 2) marks[i].documents.Add("early");
    if (i >= 4) marks[i].documents.Add("late");
    marks[i].asked = std::chrono::steady_clock::now();
    ASSERT_TRUE(PutInHost(*store, marks[i], store->NextUse()).ok());
  }
  const std::array<std::string, 2> contents = {"early", "late"};
  EXPECT_EQ(*store->CountPages(marks[0].tenant, contents, CancelFlag::Never()),
            (std::vector<int64_t>{4, 2}));
  const auto forget = [&](const std::string& tenant, const std::string& content) {
    const auto gone = store->ForgetDocument(HashOf(tenant), content, CancelFlag::Never());
    EXPECT_TRUE(gone.ok() && gone->pages.empty()) << "nothing is left to remove";
  };
  forget("stranger", "early");
  EXPECT_EQ(store->stats().pages, 6);
  // A page that is there learns which documents it belongs to.
  PageMark learns = marks[1];
  learns.documents.Add("late");
  EXPECT_EQ(*PutInHost(*store, learns, store->NextUse()), false);
  EXPECT_TRUE(store->Has(KeyOf(learns), learns.documents));
  forget("default", "late");
  EXPECT_EQ(store->stats().pages, 3);
  EXPECT_EQ(store->stats().bytes, 3 * kFile);
  EXPECT_FALSE(store->Has(KeyOf(learns)));
  // A request that came before leaves no more of it.
  EXPECT_EQ(*PutInHost(*store, marks[5], store->NextUse()), false);
  EXPECT_FALSE(store->Has(KeyOf(marks[5])));
  marks[5].asked = std::chrono::steady_clock::now();
  EXPECT_EQ(*PutInHost(*store, marks[5], store->NextUse()), true) << "it was uploaded again";
}

TEST(HostStoreTest, ManyThreadsNeverMixPages) {
  const auto store = MakeHost(5 * kFile);
  const std::vector<PageMark> marks = MarksOf(12);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < (kThreadSanitizer ? 300 : 3000); ++i) {
        const PageMark& mark = marks[random() % marks.size()];
        const auto kind = random() % 5;
        const std::array<PageKey, 1> keys = {KeyOf(mark)};
        if (kind < 2) {
          PutInHost(*store, mark, store->NextUse()).status().IgnoreError();
        } else if (kind < 4) {
          FindsInHost(*store, mark);
        } else {
          store->Distrust(keys, false);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->stats().rejects, 0);
  EXPECT_LE(store->stats().bytes, 5 * kFile);
  const std::vector<PageMark> last = MarksOf(5, "default", 500);
  const int64_t use = store->NextUse();
  for (const PageMark& mark : last) EXPECT_EQ(*PutInHost(*store, mark, use), true);
}

}  // namespace
}  // namespace annulus
