// Each allocation of the mover's threads fails in turn: the job comes back all the same, and the
// store's counts are right.

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/tiers/disk_store.h"
#include "engine/tiers/page_mover.h"
#include "tests/engine/tiers/marks.h"
#include "tests/engine/tiers/mover_lanes.h"
#include "tests/support/counting_heap.h"
#include "tests/support/fake_backend.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using testing::FailAllocation;
using testing::MarksOf;
using testing::PayloadOf;
using testing::TakeAllocationFailed;

constexpr size_t kBytes = 300;
constexpr int kMost = 1000;

class PageMoverHeapTest : public ::testing::Test {
 protected:
  PageMoverHeapTest()
      : path_((directory_.path() / "p").string()), store_(*DiskStore::Open(path_, 1 << 30)) {
    PageMover::Options options;
    options.lanes = lanes_.all();
    options.wake = [this] {
      std::lock_guard lock(mutex_);
      woken_ = true;
      changed_.notify_all();
    };
    mover_ = std::make_unique<PageMover>(*store_, options);
  }

  // What came of the job that was begun.
  PageMover::Done Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return woken_; });
    woken_ = false;
    const std::vector<PageMover::Done> done = mover_->TakeDone();
    EXPECT_EQ(done.size(), 1u);
    return done.empty() ? PageMover::Done() : done[0];
  }

  PageMover::Done Write(const PageMark& mark, std::vector<std::byte>& page) {
    mover_->Write({1, mark, {std::span(page)}, ++use_});
    return Wait();
  }
  PageMover::Done Read(const PageMark& mark, std::vector<std::byte>& page) {
    mover_->Read({2, mark, {std::span(page)}, ++use_}, {7, 1});
    return Wait();
  }

  int64_t files() const {
    int64_t files = 0;
    for (const auto& each : std::filesystem::directory_iterator(path_)) {
      files += each.path().extension() == ".page";
    }
    return files;
  }

  testing::TempDirectory directory_;
  const std::string path_;
  testing::FakeBackend host_;
  testing::MoverLanes lanes_{host_, kBytes, PageMover::kThreads};
  std::unique_ptr<DiskStore> store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  int64_t use_ = 0;
  std::unique_ptr<PageMover> mover_;
};

TEST_F(PageMoverHeapTest, LosesNoWrite) {
  const std::vector<PageMark> marks = MarksOf(kMost);
  bool failed = true;
  int nth = 0;
  for (; failed && nth < kMost; ++nth) {
    SCOPED_TRACE(::testing::Message() << "allocation " << nth);
    std::vector<std::byte> page = PayloadOf(marks[nth], kBytes);
    FailAllocation(1, nth);
    const PageMover::Done done = Write(marks[nth], page);
    failed = TakeAllocationFailed();
    EXPECT_EQ(done.ticket, 1u);
    EXPECT_TRUE(failed || done.status.ok()) << done.status;
    EXPECT_TRUE(store_->on()) << store_->stats().off;
    const DiskStore::Stats stats = store_->stats();
    EXPECT_EQ(stats.bytes, stats.pages * KnownPages::FileBytes(kBytes));
    EXPECT_EQ(stats.pages, files());
    EXPECT_TRUE(Write(marks[nth], page).status.ok());
    EXPECT_EQ(store_->stats().pages, nth + 1);
  }
  EXPECT_GE(nth, 5);
  EXPECT_FALSE(failed);
}

TEST_F(PageMoverHeapTest, LosesNoRead) {
  const PageMark mark = MarksOf(1)[0];
  std::vector<std::byte> page = PayloadOf(mark, kBytes);
  ASSERT_TRUE(Write(mark, page).fresh);
  bool failed = true;
  int nth = 0;
  for (; failed && nth < kMost; ++nth) {
    SCOPED_TRACE(::testing::Message() << "allocation " << nth);
    std::vector<std::byte> back(kBytes);
    FailAllocation(1, nth);
    const PageMover::Done done = Read(mark, back);
    failed = TakeAllocationFailed();
    EXPECT_TRUE(done.ticket == 2 && done.read && done.batch == 7);
    EXPECT_TRUE(failed || done.status.ok()) << done.status;
    ASSERT_TRUE(Read(mark, back).status.ok());
    EXPECT_EQ(back, page);
  }
  EXPECT_GE(nth, 1);
  EXPECT_FALSE(failed);
}

}  // namespace
}  // namespace annulus
