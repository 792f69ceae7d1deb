#include "engine/tiers/page_mover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>

#include "engine/base/clock.h"
#include "tests/engine/tiers/marks.h"
#include "tests/engine/tiers/mover_lanes.h"
#include "tests/support/fake_backend.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using testing::MarksOf;
using testing::PayloadOf;

constexpr size_t kBytes = 300;

// Calls wait while it is closed.
class ClosedCalls final : public DiskCalls {
 public:
  ssize_t Read(int file, void* bytes, size_t count, int64_t offset) override {
    Wait();
    return DiskCalls::Read(file, bytes, count, offset);
  }
  ssize_t Write(int file, const void* bytes, size_t count, int64_t offset) override {
    Wait();
    return DiskCalls::Write(file, bytes, count, offset);
  }
  void Close(bool closed) {
    std::lock_guard lock(mutex_);
    closed_ = closed;
    changed_.notify_all();
  }
  void WaitForCalls(int calls) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= calls; });
  }

 private:
  void Wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !closed_; });
    --waiting_;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int waiting_ = 0;
};

class PageMoverTest : public ::testing::Test {
 protected:
  PageMoverTest() : store_(*DiskStore::Open((directory_.path() / "p").string(), 1 << 30, calls_)) {}

  // The marks of a text that the store has.
  std::vector<PageMark> Stored(int pages, int32_t salt = 0) {
    const std::vector<PageMark> marks = MarksOf(pages, "default", salt);
    for (const PageMark& mark : marks) {
      const std::vector<std::byte> payload = PayloadOf(mark, kBytes);
      const std::array<std::span<const std::byte>, 1> parts = {payload};
      EXPECT_TRUE(store_->Put(mark, parts, 1).ok());
    }
    return marks;
  }

  PageMover::Options MakeOptions(int threads = PageMover::kThreads) {
    return MakeOptions(host_, threads);
  }
  PageMover::Options MakeOptions(Backend& device, int threads = PageMover::kThreads) {
    PageMover::Options options;
    lanes_ = std::make_unique<testing::MoverLanes>(device, kBytes, threads);
    options.lanes = lanes_->all();
    options.wake = [this] {
      std::lock_guard lock(mutex_);
      ++woken_;
      changed_.notify_all();
    };
    return options;
  }

  std::vector<PageMover::Done> WaitFor(PageMover& mover, int jobs) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return woken_ >= jobs; });
    woken_ -= jobs;
    return mover.TakeDone();
  }

  static PagePieces Pieces(std::vector<std::byte>& page) {
    const std::span<std::byte> all(page);
    return {all.first(100), all.subspan(100)};
  }

  testing::TempDirectory directory_;
  ClosedCalls calls_;
  std::unique_ptr<DiskStore> store_;
  testing::FakeBackend host_;
  std::unique_ptr<testing::MoverLanes> lanes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int woken_ = 0;
};

TEST_F(PageMoverTest, CarriesPagesThereAndBack) {
  PageMover mover(*store_, MakeOptions());
  const std::vector<PageMark> marks = MarksOf(20);
  std::vector<std::vector<std::byte>> pages;
  for (const PageMark& mark : marks) pages.push_back(PayloadOf(mark, kBytes));
  for (size_t i = 0; i < marks.size(); ++i) mover.Write({i, marks[i], Pieces(pages[i]), 1});
  for (const auto& done : WaitFor(mover, 20)) {
    EXPECT_TRUE(done.status.ok() && !done.read && done.fresh);
  }
  std::vector<std::vector<std::byte>> back(marks.size(), std::vector<std::byte>(kBytes));
  for (size_t i = 0; i < marks.size(); ++i) {
    mover.Read({100 + i, marks[i], Pieces(back[i]), 2}, {1, 20});
  }
  const auto done = WaitFor(mover, 20);
  EXPECT_EQ(done.size(), 20u);
  for (const auto& each : done) EXPECT_TRUE(each.status.ok() && each.read && each.ticket >= 100);
  EXPECT_EQ(back, pages);
  EXPECT_EQ(mover.OldestJob(), 0);
}

// What differs goes, and the page that was computed takes its place.
TEST_F(PageMoverTest, ComparesWithWhatTheStoreHas) {
  PageMover::Options options = MakeOptions();
  options.compares = true;
  PageMover mover(*store_, std::move(options));
  const std::vector<PageMark> marks = Stored(2);
  const PageMark absent = MarksOf(3)[2];
  std::vector<std::byte> same = PayloadOf(marks[0], kBytes);
  std::vector<std::byte> other(kBytes, std::byte{0x55});
  mover.Write({.ticket = 0, .mark = marks[0], .pieces = Pieces(same), .use = 2, .compare = true});
  mover.Write({.ticket = 1, .mark = marks[1], .pieces = Pieces(other), .use = 2, .compare = true});
  mover.Write({.ticket = 2, .mark = absent, .pieces = Pieces(other), .use = 2, .compare = true});
  const auto done = WaitFor(mover, 3);
  ASSERT_EQ(done.size(), 3u);
  for (const auto& each : done) EXPECT_TRUE(each.status.ok()) << each.status;
  EXPECT_TRUE(done[0].compared && !done[0].fresh);
  EXPECT_TRUE(done[1].compared && done[1].fresh);
  EXPECT_TRUE(!done[2].compared && done[2].fresh);
  EXPECT_EQ(store_->stats().mismatches, 1);
  std::vector<std::byte> back(kBytes);
  EXPECT_TRUE(store_->Get(marks[1], back, 3).ok());
  EXPECT_EQ(back, other);
}

TEST_F(PageMoverTest, RemovesFilesOfPagesThatAreNotTrusted) {
  PageMover mover(*store_, MakeOptions());
  const std::vector<PageMark> marks = Stored(3);
  const std::array<PageKey, 2> keys = {KeyOf(marks[1]), KeyOf(marks[2])};
  mover.Remove(store_->Distrust(keys));
  std::vector<std::byte> page = PayloadOf(marks[0], kBytes);
  mover.Write({3, MarksOf(4)[3], Pieces(page), 1});  // behind them
  EXPECT_TRUE(WaitFor(mover, 1)[0].fresh);
  EXPECT_EQ(store_->stats().bytes, 2 * KnownPages::FileBytes(kBytes));
  EXPECT_TRUE(store_->Has(KeyOf(marks[0])));
}

TEST_F(PageMoverTest, WhatIsRefusedDoesNotTouchItsPlace) {
  PageMover mover(*store_, MakeOptions());
  std::vector<std::byte> place(kBytes, std::byte{0x55});
  mover.Read({1, MarksOf(1)[0], Pieces(place), 1}, {1, 1});
  const auto done = WaitFor(mover, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(place, std::vector<std::byte>(kBytes, std::byte{0x55}));
}

// Whatever the disk does, the places are the caller's again at once.
TEST_F(PageMoverTest, CancelledReadsTouchNothingAndSayNothing) {
  const std::vector<PageMark> marks = Stored(6);
  const std::vector<PageMark> others = Stored(3, 500);
  PageMover mover(*store_, MakeOptions());
  calls_.Close(true);
  auto places = std::make_unique<std::vector<std::vector<std::byte>>>();
  places->assign(6, std::vector<std::byte>(kBytes));
  for (size_t i = 0; i < 6; ++i) mover.Read({i, marks[i], Pieces((*places)[i]), 2}, {1, 6});
  calls_.WaitForCalls(2);
  EXPECT_GT(mover.OldestJob(), 0);
  mover.CancelReads(1);
  places.reset();  // a sanitizer sees what is written there
  std::vector<std::vector<std::byte>> back(3, std::vector<std::byte>(kBytes));
  for (size_t i = 0; i < 3; ++i) mover.Read({10 + i, others[i], Pieces(back[i]), 2}, {2, 3});
  calls_.Close(false);
  std::vector<PageMover::Done> done;
  while (done.size() < 3) {
    for (auto& each : WaitFor(mover, 1)) done.push_back(std::move(each));
  }
  for (const PageMover::Done& each : done) EXPECT_TRUE(each.status.ok() && each.ticket >= 10);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(back[i], PayloadOf(others[i], kBytes));
  // What had ended and was not taken is cancelled too.
  mover.Read({20, others[0], Pieces(back[0]), 2}, {3, 1});
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return woken_ >= 1; });
  }
  mover.CancelReads(3);
  EXPECT_TRUE(mover.TakeDone().empty());
}

TEST_F(PageMoverTest, WritesThatAreDroppedNeedTheirPagesNoMore) {
  PageMover mover(*store_, MakeOptions());
  calls_.Close(true);
  const std::vector<PageMark> marks = MarksOf(5);
  auto pages = std::make_unique<std::vector<std::vector<std::byte>>>();
  for (const PageMark& mark : marks) pages->push_back(PayloadOf(mark, kBytes));
  for (size_t i = 0; i < 5; ++i) mover.Write({i, marks[i], Pieces((*pages)[i]), 1});
  calls_.WaitForCalls(1);
  EXPECT_EQ(mover.DropWrites(), (std::vector<uint64_t>{1, 2, 3, 4}));
  for (auto& page : *pages) std::fill(page.begin(), page.end(), std::byte{0x77});
  pages.reset();
  calls_.Close(false);
  const auto done = WaitFor(mover, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_TRUE(done[0].ticket == 0 && done[0].fresh);
  std::vector<std::byte> back(kBytes);
  EXPECT_TRUE(store_->Get(marks[0], back, 2).ok());
  EXPECT_EQ(back, PayloadOf(marks[0], kBytes));
}

TEST_F(PageMoverTest, BatchesOfFewPagesGoFirst) {
  const std::vector<PageMark> marks = Stored(20);
  const std::vector<PageMark> few = Stored(2, 500);
  PageMover::Options options = MakeOptions(2);
  PageMover mover(*store_, options);
  std::vector<std::vector<std::byte>> back(22, std::vector<std::byte>(kBytes));
  calls_.Close(true);
  for (size_t i = 0; i < 20; ++i) mover.Read({i, marks[i], Pieces(back[i]), 2}, {1, 20});
  calls_.WaitForCalls(1);
  for (size_t i = 0; i < 2; ++i) mover.Read({50 + i, few[i], Pieces(back[20 + i]), 2}, {2, 2});
  const auto start = std::chrono::steady_clock::now();
  calls_.Close(false);
  std::vector<uint64_t> order;
  double busy = 0;
  while (order.size() < 22) {
    for (const auto& done : WaitFor(mover, 1)) {
      order.push_back(done.ticket);
      busy += done.busy_seconds - (done.ticket == 0 ? done.seconds : 0);
    }
  }
  const std::vector<uint64_t> first(order.begin(), order.begin() + 4);
  EXPECT_EQ(first, (std::vector<uint64_t>{0, 50, 51, 1}));
  // Queues do not count twice: all together reading takes no longer than the clock says.
  EXPECT_LE(busy, SecondsBetween(start, std::chrono::steady_clock::now()) + 0.001);
}

TEST_F(PageMoverTest, EndsAtOnceWhateverWaits) {
  std::vector<std::byte> page(kBytes);
  PageMover::Options options = MakeOptions();
  options.write_bytes_per_second = 1;  // five minutes for a page
  const auto start = std::chrono::steady_clock::now();
  {
    PageMover mover(*store_, options);
    for (const PageMark& mark : MarksOf(10)) mover.Write({1, mark, Pieces(page), 1});
    WaitFor(mover, 1);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(store_->stats().pages, 1);
}

}  // namespace
}  // namespace annulus
