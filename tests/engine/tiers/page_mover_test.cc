#include "engine/tiers/page_mover.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "tests/engine/tiers/marks.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using testing::MarksOf;
using testing::PayloadOf;

constexpr size_t kBytes = 300;

class PageMoverTest : public ::testing::Test {
 protected:
  PageMoverTest() : store_(*DiskStore::Open((directory_.path() / "p").string(), 1 << 30)) {}

  PageMover::Options MakeOptions() {
    PageMover::Options options;
    options.page_bytes = kBytes;
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
  std::unique_ptr<DiskStore> store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int woken_ = 0;
};

TEST_F(PageMoverTest, CarriesPagesThereAndBack) {
  PageMover mover(*store_, MakeOptions());
  const std::vector<PageMark> marks = MarksOf(20);
  std::vector<std::vector<std::byte>> pages;
  for (const PageMark& mark : marks) pages.push_back(PayloadOf(mark, kBytes));
  for (size_t i = 0; i < marks.size(); ++i) mover.Write(i, marks[i], Pieces(pages[i]), 1);
  for (const auto& done : WaitFor(mover, 20)) EXPECT_TRUE(done.status.ok() && !done.read);
  std::vector<std::vector<std::byte>> back(marks.size(), std::vector<std::byte>(kBytes));
  for (size_t i = 0; i < marks.size(); ++i) mover.Read(100 + i, marks[i], Pieces(back[i]), 2);
  const auto done = WaitFor(mover, 20);
  EXPECT_EQ(done.size(), 20u);
  for (const auto& each : done) EXPECT_TRUE(each.status.ok() && each.read && each.ticket >= 100);
  EXPECT_EQ(back, pages);
  EXPECT_EQ(mover.OldestRead(), 0);
}

TEST_F(PageMoverTest, WhatIsRefusedDoesNotTouchItsPlace) {
  PageMover mover(*store_, MakeOptions());
  std::vector<std::byte> place(kBytes, std::byte{0x55});
  mover.Read(1, MarksOf(1)[0], Pieces(place), 1);
  const auto done = WaitFor(mover, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(place, std::vector<std::byte>(kBytes, std::byte{0x55}));
}

TEST_F(PageMoverTest, EndsAtOnceWhateverWaits) {
  std::vector<std::byte> page(kBytes);
  PageMover::Options options = MakeOptions();
  options.write_bytes_per_second = 1;  // five minutes for a page
  const auto start = std::chrono::steady_clock::now();
  {
    PageMover mover(*store_, options);
    for (const PageMark& mark : MarksOf(10)) mover.Write(1, mark, Pieces(page), 1);
    WaitFor(mover, 1);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(store_->stats().pages, 1);
}

}  // namespace
}  // namespace annulus
