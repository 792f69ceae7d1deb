#include "engine/tiers/shelf_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/tiers/local_shelves.h"
#include "engine/tiers/page_comparer.h"
#include "engine/tiers/page_mover.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/engine/tiers/disk_store_fixture.h"
#include "tests/engine/tiers/marks.h"
#include "tests/engine/tiers/mover_lanes.h"
#include "tests/support/eventually.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;
using testing::kFile;
using testing::kPayload;
using testing::MarksOf;
using testing::PayloadOf;

constexpr int kRanks = 3;
constexpr int kPages = 8;  // of each rank
constexpr int kSlots = 4;  // beside each

// Shelves that can be lost, as those of another process.
class LossyShelves final : public RankShelves {
 public:
  explicit LossyShelves(std::unique_ptr<LocalShelves> shelves) : shelves_(std::move(shelves)) {}
  absl::Status Save(PageId page, int32_t slot, const PageKey& key) override {
    return lost_ ? absl::UnavailableError("lost") : shelves_->Save(page, slot, key);
  }
  absl::Status Load(PageId page, int32_t slot, const PageKey& key) override {
    if (before_load) before_load();
    return lost_ ? absl::UnavailableError("lost") : shelves_->Load(page, slot, key);
  }
  absl::StatusOr<bool> Same(PageId one, PageId other) override {
    return shelves_->Same(one, other);
  }
  int64_t resident_bytes() const override { return shelves_->resident_bytes(); }
  void set_lost(bool lost) { lost_ = lost; }
  void Replace(std::unique_ptr<LocalShelves> shelves) { shelves_ = std::move(shelves); }

  std::function<void()> before_load;

 private:
  std::unique_ptr<LocalShelves> shelves_;
  bool lost_ = false;
};

class ShelfStoreTest : public ::testing::Test {
 protected:
  ShelfStoreTest() : shelves_(MakeShelves()) {
    store_ = ShelfStore::Create(OptionsOf(kRanks * kSlots * kFile), shelves_).value();
  }

  static ShelfStore::Options OptionsOf(int64_t limit) {
    return {.limit_bytes = limit, .page_bytes = kPayload, .ranks = kRanks};
  }

  std::unique_ptr<LocalShelves> MakeShelves() {
    LocalShelves::Options options;
    options.ranks = kRanks;
    options.pages = kPages;
    options.page_bytes = kPayload;
    options.slots = kSlots;
    options.pieces = [this](PageId id) {
      std::span<std::byte> page = Page(id);
      return PagePieces{page.first(20), page.subspan(20)};
    };
    return LocalShelves::Create(std::move(options)).value();
  }

  std::vector<std::byte>& Page(PageId id) {
    std::vector<std::byte>& page = pages_[id];
    page.resize(kPayload);
    return page;
  }
  absl::StatusOr<bool> Put(const PageMark& mark, PageId id) {
    Page(id) = PayloadOf(mark, kPayload);
    return store_->Put(mark, PageSource(id, kPayload), store_->NextUse());
  }
  // The status of reading the page; if that is OK, its bytes and coverage must be right.
  absl::Status Get(const PageMark& mark, PageId id) {
    std::fill(Page(id).begin(), Page(id).end(), std::byte{0xEE});
    const auto got = store_->Get(mark, PageTarget(id, kPayload), store_->NextUse());
    if (got.ok()) {
      EXPECT_EQ(Page(id), PayloadOf(mark, kPayload));
      EXPECT_EQ(*got, mark.coverage);
    }
    return got.status();
  }

  std::map<PageId, std::vector<std::byte>> pages_;
  LossyShelves shelves_;
  std::unique_ptr<ShelfStore> store_;
};

TEST_F(ShelfStoreTest, GivesPagesBackToTheRankThatHadThem) {
  std::vector<PageMark> marks = MarksOf(kRanks);
  marks[1].coverage = 0.25;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(*Put(marks[rank], {rank, 1}), true);
    EXPECT_EQ(*Put(marks[rank], {rank, 2}), false) << "it is there";
    EXPECT_EQ(store_->RanksWith(KeyOf(marks[rank])), uint64_t{1} << rank);
  }
  EXPECT_EQ(store_->RanksWith(KeyOf(MarksOf(4)[3])), 0u);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(Get(marks[rank], {rank, 7}), absl::OkStatus());
    const absl::Status other = Get(marks[rank], {(rank + 1) % kRanks, 7});
    EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
    EXPECT_TRUE(store_->Has(KeyOf(marks[rank]))) << "it stays where it is";
  }
  EXPECT_EQ(store_->stats().pages, kRanks);
  EXPECT_EQ(store_->stats().bytes, kRanks * kFile);
  EXPECT_EQ(store_->resident_bytes(),
            kRanks * static_cast<int64_t>(LocalShelves::SlotBytes(kPayload)));
}

// Texts on several rings may begin alike.
TEST_F(ShelfStoreTest, APageIsBesideEachRankThatHadIt) {
  const PageMark mark = MarksOf(1)[0];
  EXPECT_EQ(*Put(mark, {0, 1}), true);
  EXPECT_EQ(*Put(mark, {2, 1}), true);
  EXPECT_EQ(store_->RanksWith(KeyOf(mark)), 0b101u);
  EXPECT_EQ(store_->stats().pages, 2);
  EXPECT_TRUE(store_->Has(store_->KeyBeside(KeyOf(mark), 2)));
  EXPECT_FALSE(store_->Has(store_->KeyBeside(KeyOf(mark), 1)));
  for (const int32_t rank : {0, 2}) EXPECT_EQ(Get(mark, {rank, 7}), absl::OkStatus());
  const std::vector<PageKey> keys = {KeyOf(mark)};
  EXPECT_TRUE(store_->Distrust(keys).empty());
  EXPECT_FALSE(store_->Has(KeyOf(mark))) << "beside no rank";
  EXPECT_EQ(store_->stats().bytes, 0);
}

// However much room there is beside others.
TEST_F(ShelfStoreTest, RanksMakeRoomForTheirOwnPagesOnly) {
  const std::vector<PageMark> others = MarksOf(2, "default", 1000);
  for (int page = 0; page < 2; ++page) ASSERT_TRUE(Put(others[page], {0, page}).ok());
  const std::vector<PageMark> marks = MarksOf(kSlots + 2);
  for (int page = 0; page < kSlots + 2; ++page) EXPECT_EQ(*Put(marks[page], {1, page}), true);
  for (int page = 0; page < kSlots + 2; ++page) {
    EXPECT_EQ(Get(marks[page], {1, 0}).ok(), page >= 2) << "the oldest two made room";
  }
  for (const PageMark& mark : others) EXPECT_EQ(Get(mark, {0, 0}), absl::OkStatus());
}

// Each shelf has a part of what the tenant may have.
TEST_F(ShelfStoreTest, ATenantHasItsPartBesideEachRank) {
  std::vector<PageMark> marks = MarksOf(4, "small");
  for (PageMark& mark : marks) mark.tenant_bytes = kRanks * 2 * kFile;
  for (int page = 0; page < 4; ++page) EXPECT_EQ(*Put(marks[page], {2, page}), true);
  EXPECT_EQ(store_->stats().pages, 2);
  EXPECT_EQ(Get(marks[3], {2, 0}), absl::OkStatus());
}

TEST_F(ShelfStoreTest, WhatWasBesideALostRankIsForgotten) {
  const std::vector<PageMark> marks = MarksOf(2 * kRanks);
  for (int page = 0; page < 2 * kRanks; ++page) {
    ASSERT_TRUE(Put(marks[page], {page % kRanks, page / kRanks}).ok());
  }
  shelves_.set_lost(true);
  EXPECT_EQ(Get(marks[1], {1, 5}).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(store_->on()) << "the others are there";
  shelves_.set_lost(false);
  const std::vector<int32_t> lost = {1};
  store_->ForgetRanks(lost);
  EXPECT_EQ(store_->stats().pages, 4);
  EXPECT_EQ(store_->stats().bytes, 4 * kFile);
  EXPECT_EQ(Get(marks[1], {1, 5}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Get(marks[2], {2, 5}), absl::OkStatus());
  // All of its room is of use again.
  const std::vector<PageMark> later = MarksOf(kSlots, "default", 1000);
  for (int page = 0; page < kSlots; ++page) EXPECT_EQ(*Put(later[page], {1, page}), true);
  EXPECT_EQ(store_->stats().pages, 4 + kSlots);
}

// A shelf that came in place of another has none of its pages, whatever the directory says.
TEST_F(ShelfStoreTest, SlotsThatHoldSomethingElseAreMisses) {
  const std::vector<PageMark> marks = MarksOf(2);
  ASSERT_TRUE(Put(marks[0], {0, 0}).ok());
  ASSERT_TRUE(Put(marks[1], {1, 0}).ok());
  shelves_.Replace(MakeShelves());
  EXPECT_EQ(Get(marks[0], {0, 3}).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Page({0, 3}), std::vector<std::byte>(kPayload, std::byte{0xEE})) << "untouched";
  EXPECT_EQ(store_->stats().rejects, 1);
  EXPECT_FALSE(store_->Has(KeyOf(marks[0])));
  // The slot of one is not taken for another's.
  ASSERT_TRUE(shelves_.Save({1, 0}, 0, KeyOf(marks[0])).ok());
  EXPECT_EQ(Get(marks[1], {1, 3}).code(), absl::StatusCode::kDataLoss);
}

TEST_F(ShelfStoreTest, FailedSavesTakeNoRoom) {
  shelves_.set_lost(true);
  const std::vector<PageMark> marks = MarksOf(2 * kSlots);
  for (int page = 0; page < 2 * kSlots; ++page) {
    EXPECT_EQ(Put(marks[page], {0, 0}).status().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(store_->stats().pages, 0);
  EXPECT_EQ(store_->stats().bytes, 0);
  shelves_.set_lost(false);
  for (int page = 0; page < kSlots; ++page) EXPECT_EQ(*Put(marks[page], {0, page}), true);
  EXPECT_EQ(store_->stats().pages, kSlots);
}

TEST_F(ShelfStoreTest, WhatThereIsNotIsRefused) {
  const PageKey key = KeyOf(MarksOf(1)[0]);
  for (const PageId page : {PageId{-1, 0}, PageId{kRanks, 0}, PageId{0, -1}, PageId{0, kPages}}) {
    EXPECT_EQ(shelves_.Save(page, 0, key).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(shelves_.Load(page, 0, key).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(shelves_.Same({0, 0}, page).status().code(), absl::StatusCode::kInvalidArgument);
  }
  for (const int32_t slot : {-1, kSlots}) {
    EXPECT_THAT(std::string(shelves_.Load({0, 0}, slot, key).message()),
                HasSubstr("of a shelf; allowed are 0 to 3"));
  }
  const absl::Status small = ShelfStore::SlotsOf(OptionsOf(kRanks * kFile - 1)).status();
  EXPECT_EQ(small.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(small.message()), HasSubstr("raise kv-host"));
}

TEST_F(ShelfStoreTest, PagesOfARankAreComparedWhereTheyAre) {
  const std::vector<PageMark> marks = MarksOf(2);
  Page({2, 0}) = Page({2, 1}) = PayloadOf(marks[0], kPayload);
  Page({2, 2}) = PayloadOf(marks[1], kPayload);
  const auto comparer = PageComparer::Beside(shelves_, Clock::Real());
  constexpr std::chrono::minutes kMost{1};
  EXPECT_EQ(comparer->Same({2, {}, 0}, {2, {}, 1}, kMost).value(), true);
  EXPECT_EQ(comparer->Same({2, {}, 0}, {2, {}, 2}, kMost).value(), false);
  EXPECT_EQ(comparer->Same({2, {}, 0}, {2, {}, kPages}, kMost).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Whoever cancels a read gets the page back when its copy has ended.
TEST_F(ShelfStoreTest, MoversLetItCopyPages) {
  const std::unique_ptr<Backend> cpu = CreateCpuBackend().value();
  const testing::MoverLanes lanes(*cpu, kPayload, 2);
  const PageMark mark = MarksOf(1)[0];
  Page({1, 0}) = PayloadOf(mark, kPayload);
  Page({1, 3}) = std::vector<std::byte>(kPayload);
  std::promise<void> reading;
  std::promise<void> go_on;
  PageMover::Options options;
  options.lanes = lanes.all();
  PageMover mover(*store_, options);
  const auto finish = [&](uint64_t ticket) {
    std::vector<PageMover::Done> done;
    EXPECT_TRUE(testing::Eventually([&] {
      done = mover.TakeDone();
      return !done.empty();
    }));
    EXPECT_TRUE(done.size() == 1 && done[0].ticket == ticket);
    return done.empty() ? absl::UnknownError("it did not end") : done[0].status;
  };
  mover.Write({.ticket = 1, .mark = mark, .pieces = {}, .use = 1, .id = {1, 0}});
  EXPECT_EQ(finish(1), absl::OkStatus());
  mover.Read({.ticket = 2, .mark = mark, .pieces = {}, .use = 2, .id = {1, 3}}, {7, 1});
  EXPECT_EQ(finish(2), absl::OkStatus());
  EXPECT_EQ(Page({1, 3}), Page({1, 0}));
  mover.Read({.ticket = 3, .mark = mark, .pieces = {}, .use = 3, .id = {2, 3}}, {7, 1});
  EXPECT_EQ(finish(3).code(), absl::StatusCode::kNotFound) << "it was another rank's";
  shelves_.before_load = [&] {
    reading.set_value();
    EXPECT_EQ(go_on.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  };
  mover.Read({.ticket = 4, .mark = mark, .pieces = {}, .use = 4, .id = {1, 3}}, {8, 1});
  EXPECT_EQ(reading.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  mover.CancelReads(8);
  EXPECT_TRUE(mover.IsCopyingFor(8));
  EXPECT_TRUE(mover.IsCopying(4));
  go_on.set_value();
  EXPECT_TRUE(testing::Eventually([&] { return !mover.IsCopyingFor(8); }));
  EXPECT_TRUE(mover.TakeDone().empty());
  shelves_.set_lost(true);
  shelves_.before_load = nullptr;
  mover.Read({.ticket = 5, .mark = mark, .pieces = {}, .use = 5, .id = {1, 3}}, {9, 1});
  EXPECT_EQ(finish(5).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(store_->on());
}

}  // namespace
}  // namespace annulus
