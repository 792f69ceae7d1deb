#include "engine/workers/worker_shelves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/eventually.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

constexpr size_t kPageBytes = 64;
constexpr int kPages = 4;
constexpr std::chrono::minutes kLimit{1};

class WorkerShelvesTest : public ::testing::Test {
 protected:
  // Rank 5's. `say` is told of what it says.
  std::unique_ptr<WorkerShelves> Make(std::function<void(const wire::FromWorker&)> say) {
    LocalShelves::Options options;
    options.first_rank = 5;
    options.pages = kPages;
    options.page_bytes = kPageBytes;
    options.slots = 2;
    options.pieces = [this](PageId id) { return PagePieces{pages_[static_cast<size_t>(id.page)]}; };
    return std::make_unique<WorkerShelves>(LocalShelves::Create(std::move(options)).value(),
                                           std::move(say));
  }
  static wire::CopyPage Copy(wire::CopyPage::Kind kind, uint64_t ticket, int page, int slot = 0,
                             int other = 0) {
    return ToMessage({kind, {5, page}, slot, {HashOf("a page"), 1}, {5, other}}, ticket);
  }

  std::array<std::array<std::byte, kPageBytes>, kPages> pages_{};
};

TEST_F(WorkerShelvesTest, CopiesInOrder) {
  std::mutex mutex;
  std::vector<wire::PageCopied> said;
  const auto shelves = Make([&](const wire::FromWorker& message) {
    std::lock_guard lock(mutex);
    said.push_back(message.copied());
  });
  pages_[0].fill(std::byte{7});
  ASSERT_TRUE(shelves->Take(Copy(wire::CopyPage::KIND_SAVE, 1, 0)).ok());
  ASSERT_TRUE(shelves->Take(Copy(wire::CopyPage::KIND_LOAD, 2, 2)).ok());
  ASSERT_TRUE(shelves->Take(Copy(wire::CopyPage::KIND_LOAD, 3, 3, 1)).ok());
  ASSERT_TRUE(shelves->Take(Copy(wire::CopyPage::KIND_SAME, 4, 0, 0, 2)).ok());
  ASSERT_TRUE(shelves->Take(Copy(wire::CopyPage::KIND_SAME, 5, 0, 0, 3)).ok());
  ASSERT_TRUE(testing::Eventually([&] {
    std::lock_guard lock(mutex);
    return said.size() == 5;
  }));
  std::lock_guard lock(mutex);
  for (size_t i = 0; i < said.size(); ++i) EXPECT_EQ(said[i].ticket(), i + 1);
  EXPECT_FALSE(said[0].has_status());
  EXPECT_FALSE(said[1].has_status());
  EXPECT_EQ(said[2].status().code(), static_cast<int>(absl::StatusCode::kDataLoss)) << "empty";
  EXPECT_TRUE(said[3].same());
  EXPECT_FALSE(said[4].same());
  EXPECT_EQ(pages_[2], pages_[0]);
  EXPECT_EQ(shelves->resident_bytes(5), 4096);
}

TEST_F(WorkerShelvesTest, WhatThereIsNotIsRefused) {
  const auto shelves = Make([](const auto&) { ADD_FAILURE(); });
  const auto refused = [&](const wire::CopyPage& copy) {
    const absl::Status status = shelves->Take(copy);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused(Copy(wire::CopyPage::KIND_SAVE, 1, kPages)), HasSubstr("page 4"));
  EXPECT_THAT(refused(Copy(wire::CopyPage::KIND_LOAD, 1, -1)), HasSubstr("page -1"));
  EXPECT_THAT(refused(Copy(wire::CopyPage::KIND_LOAD, 1, 0, 2)), HasSubstr("slot 2"));
  EXPECT_THAT(refused(Copy(wire::CopyPage::KIND_SAME, 1, 0, 0, 9)), HasSubstr("page 9"));
  EXPECT_THAT(refused(Copy(static_cast<wire::CopyPage::Kind>(9), 1, 0)), HasSubstr("kind"));
  wire::CopyPage other = Copy(wire::CopyPage::KIND_SAVE, 1, 0);
  other.set_rank(4);
  EXPECT_THAT(refused(other), HasSubstr("rank 4"));
  other = Copy(wire::CopyPage::KIND_SAVE, 1, 0);
  other.set_chain(std::string(33, 'x'));
  EXPECT_THAT(refused(other), HasSubstr("chain"));
}

// While one is under way, and its answer is not sent.
TEST_F(WorkerShelvesTest, NoMoreCopiesWaitThanMay) {
  std::promise<void> begun;
  std::promise<void> go_on;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  std::once_flag once;
  const auto shelves = Make([&](const auto&) {
    std::call_once(once, [&] { begun.set_value(); });
    EXPECT_EQ(may_go_on.wait_for(kLimit), std::future_status::ready);
  });
  ASSERT_TRUE(shelves->Take(Copy(wire::CopyPage::KIND_SAVE, 1, 0)).ok());
  ASSERT_EQ(begun.get_future().wait_for(kLimit), std::future_status::ready);
  for (size_t i = 0; i < WorkerShelves::kMostCopies; ++i) {
    EXPECT_TRUE(shelves->Take(Copy(wire::CopyPage::KIND_SAVE, 2 + i, 0)).ok());
  }
  const absl::Status refused = shelves->Take(Copy(wire::CopyPage::KIND_SAVE, 100, 0));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("more copies of pages than it may"));
  go_on.set_value();
}

// Whoever asked waits for the answer.
TEST_F(WorkerShelvesTest, AnAnswerIsSaidOnceThereIsMemoryForIt) {
  std::atomic<int> tries{0};
  std::promise<wire::PageCopied> said;
  const auto shelves = Make([&](const wire::FromWorker& message) {
    if (++tries <= 2) throw std::bad_alloc();
    said.set_value(message.copied());
  });
  ASSERT_TRUE(shelves->Take(Copy(wire::CopyPage::KIND_SAVE, 7, 0)).ok());
  std::future<wire::PageCopied> answer = said.get_future();
  ASSERT_EQ(answer.wait_for(kLimit), std::future_status::ready);
  const wire::PageCopied copied = answer.get();
  EXPECT_EQ(copied.ticket(), 7u);
  EXPECT_FALSE(copied.has_status());
  EXPECT_EQ(tries, 3);
}

TEST_F(WorkerShelvesTest, AnAnswerThatIsNeverSaidHoldsUpNoEnd) {
  std::atomic<int> tries{0};
  auto shelves = Make([&](const auto&) {
    ++tries;
    throw std::bad_alloc();
  });
  ASSERT_TRUE(shelves->Take(Copy(wire::CopyPage::KIND_SAVE, 1, 0)).ok());
  ASSERT_TRUE(testing::Eventually([&] { return tries > 1; }));
  shelves.reset();
}

}  // namespace
}  // namespace annulus
