#include "engine/memory/page_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/memory/property.h"

namespace annulus {
namespace {

using testing::Below;
using ::testing::HasSubstr;
using testing::PropertyRun;

TEST(PageAllocator, GivesEveryPageOnceAndThenRefuses) {
  PageAllocator allocator(5);
  std::set<int32_t> ids;
  std::vector<PageRef> pages;
  for (int i = 0; i < 5; ++i) {
    pages.push_back(*allocator.Allocate());
    ids.insert(pages.back().id());
  }
  EXPECT_EQ(ids, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(allocator.free_count(), 0);
  const absl::Status status = allocator.Allocate().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("0 of 5"));
}

TEST(PageAllocator, ManyIsAllOrNothing) {
  PageAllocator allocator(4);
  auto first = allocator.AllocateMany(3);
  ASSERT_TRUE(first.ok());
  const absl::Status status = allocator.AllocateMany(2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("asked for 2 pages, 1 of 4"));
  EXPECT_EQ(allocator.free_count(), 1);
  EXPECT_TRUE(allocator.AllocateMany(0)->empty());
}

TEST(PageAllocator, APageIsFreeWhenItsLastOwnerEnds) {
  PageAllocator allocator(1);
  PageRef first = *allocator.Allocate();
  PageRef second = first.Share();
  PageRef third = second.Share();
  EXPECT_EQ(second.id(), first.id());
  EXPECT_EQ(allocator.owners(0), 3);
  first.Reset();
  third = PageRef();
  EXPECT_EQ(allocator.owners(0), 1);
  EXPECT_EQ(allocator.free_count(), 0);
  second.Reset();
  EXPECT_EQ(allocator.owners(0), 0);
  EXPECT_EQ(allocator.free_count(), 1);
}

TEST(PageAllocator, EmptyReferencesOwnNothing) {
  PageRef empty;
  EXPECT_FALSE(empty);
  EXPECT_EQ(empty.id(), -1);
  EXPECT_FALSE(empty.Share());
  empty.Reset();
}

TEST(PageAllocator, MovingKeepsOneOwner) {
  PageAllocator allocator(2);
  PageRef page = *allocator.Allocate();
  PageRef other = *allocator.Allocate();
  other = std::move(page);
  EXPECT_FALSE(page);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(allocator.held_count(), 1);
  EXPECT_EQ(allocator.owners(other.id()), 1);
}

TEST(PageAllocator, HooksSeeOwnerAndGeneration) {
  std::vector<std::string> events;
  const auto record = [&events](const char* what) {
    return [&events, what](const PageAllocator::Page& page) {
      events.push_back(std::string(what) + " page " + std::to_string(page.id) + " owner " +
                       std::to_string(page.owner) + " generation " +
                       std::to_string(page.generation));
    };
  };
  PageAllocator allocator(1, {.on_allocate = record("allocate"), .on_free = record("free")});
  PageRef page = *allocator.Allocate(7);
  PageRef shared = page.Share();
  page.Reset();
  shared.Reset();
  page = *allocator.Allocate(8);
  EXPECT_EQ(allocator.page(0).owner, 8u);
  // The second allocation still tells who held the page before.
  EXPECT_THAT(events, ::testing::ElementsAre("allocate page 0 owner 0 generation 0",
                                             "free page 0 owner 7 generation 1",
                                             "allocate page 0 owner 7 generation 1"));
}

TEST(PageAllocator, NoPages) {
  PageAllocator allocator(0);
  EXPECT_EQ(allocator.page_count(), 0);
  EXPECT_FALSE(allocator.Allocate().ok());
}

TEST(PageAllocatorDeathTest, EndingBeforeAPageIsABug) {
  EXPECT_DEATH(
      {
        PageRef page;
        PageAllocator allocator(3);
        page = *allocator.Allocate();
      },
      "ends with 1 of 3 pages held");
}

TEST(PageAllocatorDeathTest, AnUnknownPageIsABug) {
  PageAllocator allocator(3);
  EXPECT_DEATH(allocator.owners(3), "page 3 of 3");
  EXPECT_DEATH(allocator.page(-1), "page -1 of 3");
}

TEST(PageAllocatorProperty, CountsOwnersThroughRandomOperations) {
  const PropertyRun run(500'000);
  constexpr int32_t kPages = 61;
  std::mt19937_64 random(run.seed);
  PageAllocator allocator(kPages);
  std::vector<PageRef> references;
  std::vector<int64_t> owners(kPages);
  std::vector<uint32_t> generations(kPages);
  int32_t held = 0;

  const auto add = [&](PageRef page) {
    held += owners[page.id()]++ == 0;
    references.push_back(std::move(page));
  };
  for (int64_t i = 0; i < run.operations; ++i) {
    SCOPED_TRACE(i);
    const size_t dice = Below(random, 100);
    if (dice < 25) {
      absl::StatusOr<PageRef> page = allocator.Allocate();
      ASSERT_EQ(page.ok(), held < kPages);
      if (page.ok()) {
        ASSERT_EQ(owners[page->id()], 0) << "a held page was handed out";
        add(*std::move(page));
      }
    } else if (dice < 35) {
      const auto count = static_cast<int32_t>(Below(random, 8));
      auto pages = allocator.AllocateMany(count);
      ASSERT_EQ(pages.ok(), held + count <= kPages);
      if (pages.ok()) {
        for (PageRef& page : *pages) add(std::move(page));
      }
    } else if (!references.empty()) {
      PageRef& chosen = references[Below(random, references.size())];
      const int32_t id = chosen.id();
      if (dice < 50) {
        add(chosen.Share());
      } else {
        std::swap(chosen, references.back());
        references.pop_back();
        if (--owners[id] == 0) {
          --held;
          ++generations[id];
        }
      }
      ASSERT_EQ(allocator.owners(id), owners[id]);
      ASSERT_EQ(allocator.page(id).generation, generations[id]);
    }
    ASSERT_EQ(allocator.held_count(), held);
    ASSERT_EQ(allocator.free_count() + allocator.held_count(), allocator.page_count());
  }
  for (int32_t id = 0; id < kPages; ++id) ASSERT_EQ(allocator.owners(id), owners[id]);
  references.clear();
  EXPECT_EQ(allocator.free_count(), kPages);
}

}  // namespace
}  // namespace annulus
