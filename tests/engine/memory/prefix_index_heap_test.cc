// Each allocation of an insert fails in turn: the index then knows what it has pages for, and no
// more.

#include <gtest/gtest.h>

#include <map>
#include <new>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "engine/memory/prefix_index.h"
#include "tests/support/counting_heap.h"

namespace annulus {
namespace {

using testing::FailAllocation;
using testing::TakeAllocationFailed;

constexpr int32_t kPage = 4;
constexpr int32_t kPages = 6;
constexpr PageOwner kOwner{PageOwner::Kind::kRequest, 1};

// One full group and one with a window, of one sequence that has computed all of its pages.
class PrefixIndexHeapTest : public ::testing::Test {
 protected:
  PrefixIndexHeapTest()
      : book_({100}, {0, 10}), index_(kPage, {0, 10}, book_), tokens_(kPages * kPage) {
    std::iota(tokens_.begin(), tokens_.end(), 3);
    book_.Open(kOwner, TenantId());
    for (int group = 0; group < 2; ++group) {
      for (int32_t first = 0; first < std::ssize(tokens_); first += kPage) {
        book_.Reserve(kOwner, 0, 1);
        const PageId id{0, book_.reserve(kOwner, 0).back()};
        book_.BeginWrite(kOwner, id, group);
        book_.Complete(id);
        pages_[group][first] = id;
      }
    }
  }
  ~PrefixIndexHeapTest() override {
    index_.Clear();
    if (book_.IsOpen(kOwner)) book_.Release(kOwner);
  }

  void Insert(size_t tokens) {
    const std::function<PageId(int, int32_t)> page_at = [this](int group, int32_t first) {
      return pages_[group].at(first);
    };
    index_.Insert("model", std::span<const int32_t>(tokens_).first(tokens), std::nullopt, page_at);
  }

  // Whether the insert found the memory that it wanted.
  bool InsertFailing(int64_t nth) {
    // Another thread asks: the allocations of the one that asks do not fail.
    std::thread([nth] { FailAllocation(1, nth); }).join();
    bool threw = false;
    try {
      Insert(tokens_.size());
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    EXPECT_EQ(TakeAllocationFailed(), threw);
    return !threw;
  }

  PageBook book_;
  PrefixIndex index_;
  std::vector<int32_t> tokens_;
  std::map<int32_t, PageId> pages_[2];
};

TEST_F(PrefixIndexHeapTest, LeavesNoHalfMadePrefix) {
  constexpr int kMost = 1000;
  int nth = 0;
  for (bool done = false; !done && nth < kMost; ++nth) {
    SCOPED_TRACE(::testing::Message() << "allocation " << nth);
    index_.Clear();
    Insert(2 * kPage);
    done = InsertFailing(nth);
    const auto hit = index_.Find("model", tokens_);
    ASSERT_TRUE(hit.has_value());
    EXPECT_TRUE(hit->tokens == 2 * kPage || hit->tokens == kPages * kPage) << hit->tokens;
    for (int32_t first = 0; first < hit->tokens; first += kPage) {
      EXPECT_EQ(hit->groups[0].at(first / kPage).id, pages_[0].at(first));
    }
    // Those that the row behind it can see.
    const int32_t oldest = std::max(0, hit->tokens - 9) / kPage * kPage;
    ASSERT_EQ(std::ssize(hit->groups[1]), (hit->tokens - oldest) / kPage);
    // It can go on from there, and each prefix goes before what it begins with.
    Insert(tokens_.size());
    EXPECT_EQ(index_.Find("model", tokens_)->tokens, kPages * kPage);
  }
  EXPECT_GE(nth, 10);
  EXPECT_LT(nth, kMost);
}

// What is used least goes first, and never before what goes on from it.
TEST_F(PrefixIndexHeapTest, EvictsWhatAFailedInsertLeft) {
  constexpr int kMost = 1000;
  bool done = false;
  for (int nth = 0; !done && nth < kMost; ++nth) {
    SCOPED_TRACE(::testing::Message() << "allocation " << nth);
    index_.Clear();
    Insert(2 * kPage);
    done = InsertFailing(nth);
    int64_t last = book_.counts(0).cached;
    index_.Evict([&] {
      const int64_t now = book_.counts(0).cached;
      EXPECT_LE(now, last);
      last = now;
      return false;
    });
    EXPECT_EQ(book_.counts(0).cached, 0);
    EXPECT_EQ(index_.bytes(), 0);
  }
  EXPECT_TRUE(done);
}

// Nothing of its identity is known before, so the list of first pages is made too.
TEST_F(PrefixIndexHeapTest, TheFirstInsertMayFail) {
  constexpr int kMost = 1000;
  std::vector<int32_t> other = tokens_;
  other[1] = 1000;
  bool done = false;
  for (int nth = 0; !done && nth < kMost; ++nth) {
    SCOPED_TRACE(::testing::Message() << "allocation " << nth);
    index_.Clear();
    done = InsertFailing(nth);
    const bool known = index_.FindFull("model", tokens_).has_value();
    EXPECT_EQ(index_.FirstDifference("model", other),
              known ? std::optional<int32_t>(1) : std::nullopt);
    Insert(tokens_.size());
    EXPECT_EQ(index_.FirstDifference("model", other), 1);
    index_.Evict([] { return false; });
    EXPECT_EQ(index_.FirstDifference("model", other), std::nullopt);
    EXPECT_EQ(index_.bytes(), 0);
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace annulus
