#include "engine/memory/page_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/sanitizers.h"
#include "tests/engine/memory/property.h"

namespace annulus {
namespace {

using testing::Below;
using ::testing::ElementsAre;
using testing::PropertyRun;

constexpr int kFullGroup = 0;
constexpr int kWindowGroup = 1;

// Two groups, one full and one with a window.
std::vector<int32_t> Windows() { return {0, 8}; }

PageId NextOf(const PageBook& book, PageOwner owner, int32_t rank) {
  return {rank, book.reserve(owner, rank).back()};
}

// A complete page of `owner`, which has one in reserve.
PageId Write(PageBook& book, PageOwner owner, int32_t rank, int group) {
  const PageId id = NextOf(book, owner, rank);
  book.BeginWrite(owner, id, group);
  book.Complete(id);
  return id;
}

TEST(PageBook, EveryTransitionIsListed) {
  using enum PageState;
  const std::set<std::pair<PageState, PageState>> allowed = {
      {kFree, kReserved},    {kFree, kLoading},    {kReserved, kPartial}, {kReserved, kFree},
      {kPartial, kComplete}, {kPartial, kFree},    {kComplete, kCached},  {kComplete, kReserved},
      {kComplete, kFree},    {kCached, kComplete}, {kCached, kFree},      {kLoading, kCached},
      {kLoading, kFree},     {kPartial, kLost},    {kComplete, kLost},    {kLost, kPartial},
      {kLost, kFree}};
  std::set<std::string> names;
  for (int from = 0; from < kPageStates; ++from) {
    for (int to = 0; to < kPageStates; ++to) {
      const auto pair = std::pair(static_cast<PageState>(from), static_cast<PageState>(to));
      EXPECT_EQ(MayBecome(pair.first, pair.second), allowed.contains(pair))
          << PageStateName(pair.first) << " to " << PageStateName(pair.second);
    }
    names.insert(std::string(PageStateName(static_cast<PageState>(from))));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kPageStates));
}

TEST(PageBook, CountsTheirTenantsPages) {
  using Counts = std::pair<int64_t, int64_t>;
  PageBook book({4, 4}, Windows());
  const auto counts = [&](const char* tenant) {
    const PageBook::TenantPages pages = book.pages_of(TenantId::FromName(tenant).value());
    return Counts(pages.all, pages.unheld);
  };
  book.Open(OwnerOfRequest(1), TenantId::FromName("a").value());
  book.Open(OwnerOfRequest(2), TenantId::FromName("b").value());
  book.Reserve(OwnerOfRequest(1), 0, 2);
  book.Reserve(OwnerOfRequest(1), 1, 1);
  book.Reserve(OwnerOfRequest(2), 1, 2);
  EXPECT_EQ(counts("a"), Counts(3, 0));
  EXPECT_EQ(counts("b"), Counts(2, 0));
  EXPECT_EQ(counts("c"), Counts(0, 0));
  const PageId kept = Write(book, OwnerOfRequest(1), 1, kFullGroup);
  book.Keep(kept, {}, std::nullopt);
  EXPECT_EQ(counts("a"), Counts(3, 0));
  book.Release(OwnerOfRequest(1));
  EXPECT_EQ(counts("a"), Counts(1, 1));
  book.Unkeep(kept);
  EXPECT_EQ(counts("a"), Counts(0, 0));
  EXPECT_EQ(counts("b"), Counts(2, 0));
  book.Release(OwnerOfRequest(2));
}

TEST(PageBook, APageGoesFromReserveToTheCacheAndToAnother) {
  PageBook book({3, 2}, Windows());
  book.Open(OwnerOfRequest(7), TenantId());
  book.Reserve(OwnerOfRequest(7), 1, 2);
  EXPECT_THAT(book.reserve(OwnerOfRequest(7), 1), ElementsAre(0, 1));
  EXPECT_TRUE(book.reserve(OwnerOfRequest(7), 0).empty());
  EXPECT_EQ(book.counts(1), (PageCounts{.reserved = 2}));
  const PageId id = NextOf(book, OwnerOfRequest(7), 1);
  book.BeginWrite(OwnerOfRequest(7), id, kFullGroup);
  EXPECT_EQ(book.page(id).state, PageState::kPartial);
  EXPECT_EQ(book.counts(1), (PageCounts{.full = 1, .reserved = 1}));
  EXPECT_EQ(book.counts(1).in_use(), 1) << "a reserve is not in use";
  EXPECT_EQ(book.counts(1).held(), 2);
  book.Complete(id);
  ContentHash hash{};
  hash[0] = 5;
  book.Keep(id, hash, 0.75);
  EXPECT_EQ(book.counts(1), (PageCounts{.reserved = 1, .cached = 1}));
  EXPECT_EQ(book.unheld_count(1), 0);
  book.Release(OwnerOfRequest(7));
  EXPECT_EQ(book.unheld_count(1), 1);
  EXPECT_EQ(book.page(id).hash, hash);
  EXPECT_EQ(book.page(id).coverage, 0.75);
  EXPECT_EQ(book.page(id).tenant->name(), "default");

  book.Open(OwnerOfRequest(8), TenantId());
  book.Hold(OwnerOfRequest(8), id);
  book.Unkeep(id);
  EXPECT_EQ(book.page(id).state, PageState::kComplete);
  EXPECT_EQ(book.counts(1), (PageCounts{.full = 1, .free = 1}));
  book.Release(OwnerOfRequest(8));
  EXPECT_EQ(book.counts(1), (PageCounts{.free = 2}));
  EXPECT_EQ(book.page(id).tenant, nullptr);
  EXPECT_EQ(book.page(id).generation, 1u);
  EXPECT_EQ(book.high_water(1), 2);
}

TEST(PageBook, OwnersOfTwoKindsShareAnId) {
  PageBook book({4}, Windows());
  const PageOwner request = OwnerOfRequest(1);
  const PageOwner check{PageOwner::Kind::kCheck, 1};
  book.Open(request, TenantId());
  EXPECT_FALSE(book.IsOpen(check));
  book.Open(check, TenantId());
  book.Reserve(request, 0, 3);
  book.Reserve(check, 0, 1);
  EXPECT_EQ(book.reserve(check, 0).size(), 1u);
  EXPECT_EQ(book.page({0, book.reserve(check, 0).back()}).owner, check);
  book.Release(request);
  EXPECT_EQ(book.free_count(0), 3);
  EXPECT_TRUE(book.IsOpen(check));
  book.Release(check);
  EXPECT_EQ(book.free_count(0), 4);
}

// Each page counts once, whoever else holds it.
TEST(PageBook, CountsPagesThatPinsHold) {
  PageBook book({4, 4}, Windows());
  const PageOwner request = OwnerOfRequest(1);
  book.Open(request, TenantId());
  book.Reserve(request, 1, 2);
  PageId ids[2];
  for (PageId& id : ids) {
    id = NextOf(book, request, 1);
    book.BeginWrite(request, id, kFullGroup);
    book.Complete(id);
    book.Keep(id, {}, std::nullopt);
  }
  const PageOwner first = book.OpenPin(TenantId());
  const PageOwner second = book.OpenPin(TenantId());
  EXPECT_NE(first, second);
  book.Hold(first, ids[0]);
  book.Hold(second, ids[0]);
  EXPECT_EQ(book.pinned_count(0), 0);
  EXPECT_EQ(book.pinned_count(1), 1);
  EXPECT_TRUE(book.IsPinned(ids[0]));
  EXPECT_FALSE(book.IsPinned(ids[1])) << "a request holds it";
  book.Release(request);
  book.Release(first);
  EXPECT_EQ(book.pinned_count(1), 1);
  book.Unkeep(ids[0]);
  EXPECT_EQ(book.free_count(1), 2) << "the pin holds it";
  book.Release(second);
  EXPECT_EQ(book.pinned_count(1), 0);
  EXPECT_FALSE(book.IsPinned(ids[0]));
  book.Unkeep(ids[1]);
  EXPECT_EQ(book.free_count(1), 4);
}

// A device may still copy a page that the owner who loads it gives up.
TEST(PageBook, ALoadingPageStaysWhileAnyoneHoldsIt) {
  PageBook book({2}, Windows());
  book.Open(OwnerOfRequest(1), TenantId());
  book.Open(OwnerOfRequest(2), TenantId());
  const PageId id = book.Load(OwnerOfRequest(1), 0, kFullGroup);
  book.Hold(OwnerOfRequest(2), id);
  book.Release(OwnerOfRequest(1));
  EXPECT_EQ(book.page(id).state, PageState::kLoading);
  EXPECT_EQ(book.free_count(0), 1);
  book.Release(OwnerOfRequest(2));
  EXPECT_EQ(book.free_count(0), 2);
}

TEST(PageBook, APageBehindAWindowIsUsedAgainUnlessOthersHaveIt) {
  PageBook book({4}, Windows());
  book.Open(OwnerOfRequest(1), TenantId());
  book.Reserve(OwnerOfRequest(1), 0, 2);
  const PageId own = Write(book, OwnerOfRequest(1), 0, kWindowGroup);
  const PageId kept = Write(book, OwnerOfRequest(1), 0, kWindowGroup);
  book.Keep(kept, {}, std::nullopt);
  EXPECT_TRUE(book.Recycle(OwnerOfRequest(1), own));
  EXPECT_FALSE(book.Recycle(OwnerOfRequest(1), kept));
  EXPECT_THAT(book.reserve(OwnerOfRequest(1), 0), ElementsAre(own.page));
  EXPECT_EQ(book.counts(0), (PageCounts{.reserved = 1, .cached = 1, .free = 2}));
  EXPECT_EQ(book.page(own).use, PageUse::kNone);
  book.Release(OwnerOfRequest(1));
  book.Unkeep(kept);
}

TEST(PageBook, SummariesAreCountedForThemselves) {
  PageBook book({4}, Windows());
  book.Open(OwnerOfRequest(1), TenantId());
  EXPECT_EQ(book.ReserveSummaries(OwnerOfRequest(1), 0, 3).size(), 3u);
  EXPECT_TRUE(book.reserve(OwnerOfRequest(1), 0).empty());
  EXPECT_EQ(book.counts(0), (PageCounts{.summaries = 3, .free = 1}));
  book.Release(OwnerOfRequest(1));
}

// A request whose step failed, or that was cancelled in one, leaves nothing to be found.
TEST(PageBook, AWriteThatDidNotEndIsNeverFound) {
  PageBook book({2}, Windows());
  book.Open(OwnerOfRequest(1), TenantId());
  book.Reserve(OwnerOfRequest(1), 0, 1);
  const PageId id = NextOf(book, OwnerOfRequest(1), 0);
  book.BeginWrite(OwnerOfRequest(1), id, kFullGroup);
  book.Release(OwnerOfRequest(1));
  EXPECT_EQ(book.page(id).state, PageState::kFree);
  EXPECT_EQ(book.counts(0), (PageCounts{.free = 2}));
}

TEST(PageBook, PoolsHearWhenAPageIsTakenAndFreed) {
  std::vector<std::string> heard;
  const auto write = [&](const char* what) {
    return [&heard, what](const PageBook::Event& event) {
      heard.push_back(std::string(what) + std::to_string(event.id.page) + " of " +
                      event.owner.ToString() + " generation " + std::to_string(event.generation));
    };
  };
  PageBook book({1}, Windows(), {.on_take = write("take "), .on_free = write("free ")});
  for (const PageOwner owner : {OwnerOfRequest(41), OwnerOfRequest(42)}) {
    book.Open(owner, TenantId());
    book.Reserve(owner, 0, 1);
    book.Release(owner);
  }
  EXPECT_THAT(
      heard, ElementsAre("take 0 of nobody generation 0", "free 0 of request 41 generation 1",
                         "take 0 of request 41 generation 1", "free 0 of request 42 generation 2"));
}

class PageBookDeathTest : public ::testing::Test {
 protected:
  PageBookDeathTest() {
    book_.Open(OwnerOfRequest(1), TenantId());
    book_.Reserve(OwnerOfRequest(1), 0, 2);
    complete_ = Write(book_, OwnerOfRequest(1), 0, kFullGroup);
  }
  ~PageBookDeathTest() override {
    if (book_.IsOpen(OwnerOfRequest(1))) book_.Release(OwnerOfRequest(1));
  }

  PageBook book_{{4}, Windows()};
  PageId complete_;
};

TEST_F(PageBookDeathTest, OtherTransitionsAreBugs) {
  const PageId reserved = NextOf(book_, OwnerOfRequest(1), 0);
  EXPECT_DEATH(book_.Complete(reserved), "reserved .*cannot become complete");
  EXPECT_DEATH(book_.Complete(complete_), "complete .*cannot become complete");
  EXPECT_DEATH(book_.Keep(reserved, {}, std::nullopt), "reserved .*cannot become cached");
  EXPECT_DEATH(book_.Keep({0, 3}, {}, std::nullopt), "free .*cannot become cached");
  EXPECT_DEATH(book_.Unkeep(complete_), "nobody keeps it");
  EXPECT_DEATH(book_.BeginWrite(OwnerOfRequest(1), complete_, kFullGroup),
               "not the next in reserve for request 1");
  EXPECT_DEATH(book_.Recycle(OwnerOfRequest(1), reserved), "reserved .*cannot become reserved");
  book_.BeginWrite(OwnerOfRequest(1), reserved, kFullGroup);
  EXPECT_DEATH(book_.Keep(reserved, {}, std::nullopt), "partial .*cannot become cached");
}

TEST_F(PageBookDeathTest, OwnersAreChecked) {
  EXPECT_DEATH(book_.Open(OwnerOfRequest(1), TenantId()), "request 1 is open already");
  EXPECT_DEATH(book_.Release(OwnerOfRequest(2)), "request 2 is not open");
  EXPECT_DEATH(book_.Reserve(OwnerOfRequest(1), 0, 3), "3 pages of rank 0, 2 are free");
  EXPECT_DEATH(book_.Hold(OwnerOfRequest(1), {0, 4}), "page 4 of 4");
  EXPECT_DEATH(book_.Hold(OwnerOfRequest(1), {1, 0}), "rank 1 of 1");
  EXPECT_DEATH(book_.Hold(OwnerOfRequest(1), complete_), "look-ups cannot find it");
  const PageOwner pin = book_.OpenPin(TenantId());
  EXPECT_DEATH(book_.Reserve(pin, 0, 1), "pin 1 may only hold pages");
  book_.Release(pin);
  EXPECT_DEATH(
      {
        PageBook book({1}, Windows());
        book.Open(OwnerOfRequest(1), TenantId());
        book.Reserve(OwnerOfRequest(1), 0, 1);
      },
      "1 of 1 pages of rank 0 have owners");
}

// A page that lookups find, or that was never lost.
TEST_F(PageBookDeathTest, OnlyPagesThatNobodyKeepsAreLostAndRepaired) {
  EXPECT_DEATH(book_.Repair(complete_), "it has what was written");
  book_.Keep(complete_, {}, std::nullopt);
  EXPECT_DEATH(book_.Lose(complete_), "look-ups would find it");
  book_.Unkeep(complete_);
  book_.Lose(complete_);
  EXPECT_DEATH(book_.Keep(complete_, {}, std::nullopt), "is lost .* cannot become cached");
}

TEST_F(PageBookDeathTest, NoTenantGetsAnothersPage) {
  book_.Keep(complete_, {}, std::nullopt);
  book_.Open(OwnerOfRequest(2), TenantId::FromName("other").value());
  EXPECT_DEATH(book_.Hold(OwnerOfRequest(2), complete_), "another tenant than request 2");
  book_.Release(OwnerOfRequest(2));
  book_.Unkeep(complete_);
}

// What the book ought to say, kept in the plainest way.
struct ModelPage {
  PageState state = PageState::kFree;
  PageUse use = PageUse::kNone;
  std::set<PageOwner> holders;
  int keepers = 0;
  int tenant = 0;
};

class PageBookModel {
 public:
  static constexpr int kRanks = 3;
  static constexpr int kPages = 12;

  explicit PageBookModel(uint64_t seed) : random_(seed) {}
  ~PageBookModel() {
    while (!owners_.empty()) Release();
    for (auto& [id, page] : pages_) {
      while (page.keepers > 0) Unkeep(id);
    }
    Check();
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(book_.counts(rank), (PageCounts{.free = kPages}));
    }
  }

  void Step() {
    switch (Below(random_, 11)) {
      case 0:
        return Open();
      case 1:
        return Reserve();
      case 2:
        return BeginWrite();
      case 3:
        return OnPage(PageState::kPartial, [&](PageId id, ModelPage& page) {
          book_.Complete(id);
          page.state = PageState::kComplete;
        });
      case 4:
        return OnPage(PageState::kComplete, [&](PageId id, ModelPage& page) { Keep(id, page); });
      case 5:
        return OnPage(PageState::kCached, [&](PageId id, ModelPage& page) {
          if (Below(random_, 2) == 0) return Keep(id, page);
          Unkeep(id);
        });
      case 6:
        return OnPage(PageState::kCached, [&](PageId id, ModelPage& page) { Hold(id, page); });
      case 7:
        return OnPage(PageState::kComplete, [&](PageId id, ModelPage& page) { Recycle(id, page); });
      case 8:
        return OnPage(Below(random_, 2) == 0 ? PageState::kComplete : PageState::kPartial,
                      [&](PageId id, ModelPage& page) {
                        for (int again = 0; again < 2; ++again) book_.Lose(id);
                        page.state = PageState::kLost;
                      });
      case 9:
        return OnPage(PageState::kLost, [&](PageId id, ModelPage& page) {
          book_.Repair(id);
          page.state = PageState::kPartial;
        });
      default:
        if (Below(random_, 2) == 0) Release();
    }
  }

  // The book beside the model: every entry, every count, every reserve.
  void Check() const {
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      PageCounts counts;
      int unheld = 0;
      int pinned = 0;
      for (int32_t i = 0; i < kPages; ++i) {
        const ModelPage& page = pages_.at({rank, i});
        const PageBook::Page entry = book_.page({rank, i});
        ASSERT_EQ(entry.state, page.state);
        ASSERT_EQ(entry.holders, std::ssize(page.holders));
        ASSERT_EQ(entry.keepers, page.keepers);
        ASSERT_EQ(entry.tenant == nullptr, page.state == PageState::kFree);
        if (entry.tenant != nullptr) {
          ASSERT_EQ(*entry.tenant, Tenant(page.tenant));
        }
        ++CountOf(page, counts);
        if (page.keepers > 0 && page.holders.empty()) ++unheld;
        const bool is_pinned = std::any_of(page.holders.begin(), page.holders.end(), IsPin);
        ASSERT_EQ(book_.IsPinned({rank, i}), is_pinned);
        if (is_pinned) ++pinned;
      }
      ASSERT_EQ(book_.counts(rank), counts);
      ASSERT_EQ(counts.total(), kPages);
      ASSERT_EQ(book_.free_count(rank), counts.free);
      ASSERT_EQ(book_.unheld_count(rank), unheld);
      ASSERT_EQ(book_.pinned_count(rank), pinned);
      for (const auto& [owner, tenant] : owners_) {
        const auto reserve = book_.reserve(owner, rank);
        ASSERT_THAT(reserve, ::testing::ElementsAreArray(reserves_.at(owner)[rank]));
      }
    }
  }

 private:
  static TenantId Tenant(int tenant) {
    return tenant == 0 ? TenantId() : TenantId::FromName("other").value();
  }

  static bool IsPin(PageOwner owner) { return owner.kind == PageOwner::Kind::kPin; }

  static int64_t& CountOf(const ModelPage& page, PageCounts& counts) {
    if (page.state == PageState::kFree) return counts.free;
    if (page.state == PageState::kCached) return counts.cached;
    if (page.use == PageUse::kSummary) return counts.summaries;
    if (page.state == PageState::kReserved) return counts.reserved;
    return page.use == PageUse::kFull ? counts.full : counts.window;
  }

  template <typename Use>
  void OnPage(PageState state, const Use& use) {
    std::vector<PageId> found;
    for (const auto& [id, page] : pages_) {
      if (page.state == state) found.push_back(id);
    }
    if (found.empty()) return;
    const PageId id = found[Below(random_, found.size())];
    use(id, pages_.at(id));
  }

  PageOwner AnOwner() {
    auto owner = owners_.begin();
    std::advance(owner, Below(random_, owners_.size()));
    return owner->first;
  }

  void Open() {
    // Requests and pins with the same ids.
    const int tenant = static_cast<int>(Below(random_, 2));
    PageOwner owner = OwnerOfRequest(next_owner_ / 2 + 1);
    if (next_owner_++ % 2 == 0) {
      book_.Open(owner, Tenant(tenant));
    } else {
      owner = book_.OpenPin(Tenant(tenant));
    }
    owners_[owner] = tenant;
    reserves_[owner].resize(kRanks);
  }

  void Reserve() {
    if (owners_.empty()) return;
    const PageOwner owner = AnOwner();
    if (IsPin(owner)) return;
    const auto rank = static_cast<int32_t>(Below(random_, kRanks));
    const auto count = static_cast<int32_t>(Below(random_, book_.free_count(rank) / 2 + 1));
    const bool summaries = Below(random_, 4) == 0;
    std::vector<int32_t> ids;
    if (summaries) {
      ids = book_.ReserveSummaries(owner, rank, count);
    } else {
      book_.Reserve(owner, rank, count);
      const auto reserve = book_.reserve(owner, rank);
      ids.assign(reserve.end() - count, reserve.end());
      std::vector<int32_t>& known = reserves_[owner][rank];
      known.insert(known.end(), ids.begin(), ids.end());
    }
    for (const int32_t page : ids) {
      ModelPage& taken = pages_.at({rank, page});
      ASSERT_EQ(taken.state, PageState::kFree) << "given out twice";
      taken = {.state = PageState::kReserved, .holders = {owner}, .tenant = owners_[owner]};
      if (summaries) taken.use = PageUse::kSummary;
    }
  }

  void BeginWrite() {
    if (owners_.empty()) return;
    const PageOwner owner = AnOwner();
    const auto rank = static_cast<int32_t>(Below(random_, kRanks));
    std::vector<int32_t>& reserve = reserves_[owner][rank];
    if (reserve.empty()) return;
    const int group = static_cast<int>(Below(random_, 2));
    ModelPage& page = pages_.at({rank, reserve.back()});
    book_.BeginWrite(owner, {rank, reserve.back()}, group);
    reserve.pop_back();
    page.state = PageState::kPartial;
    page.use = group == kFullGroup ? PageUse::kFull : PageUse::kWindow;
  }

  void Keep(PageId id, ModelPage& page) {
    book_.Keep(id, {}, std::nullopt);
    ++page.keepers;
    page.state = PageState::kCached;
  }

  void Unkeep(PageId id) {
    book_.Unkeep(id);
    ModelPage& page = pages_.at(id);
    if (--page.keepers > 0) return;
    page.state = PageState::kComplete;
    if (page.holders.empty()) page = {};
  }

  void Hold(PageId id, ModelPage& page) {
    if (owners_.empty()) return;
    const PageOwner owner = AnOwner();
    if (owners_[owner] != page.tenant || !page.holders.insert(owner).second) return;
    book_.Hold(owner, id);
  }

  void Recycle(PageId id, ModelPage& page) {
    const PageOwner owner = *page.holders.begin();
    if (IsPin(owner)) return;
    const bool alone = page.holders.size() == 1;
    ASSERT_EQ(book_.Recycle(owner, id), alone);
    if (!alone) return;
    page.state = PageState::kReserved;
    page.use = PageUse::kNone;
    reserves_[owner][id.rank].push_back(id.page);
  }

  void Release() {
    if (owners_.empty()) return;
    const PageOwner owner = AnOwner();
    book_.Release(owner);
    owners_.erase(owner);
    reserves_.erase(owner);
    for (auto& [id, page] : pages_) {
      if (page.holders.erase(owner) > 0 && page.holders.empty() && page.keepers == 0) page = {};
    }
  }

  static std::map<PageId, ModelPage> AllFree() {
    std::map<PageId, ModelPage> pages;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      for (int32_t page = 0; page < kPages; ++page) pages[{rank, page}] = {};
    }
    return pages;
  }

  std::mt19937_64 random_;
  PageBook book_{std::vector<int32_t>(kRanks, kPages), Windows()};
  std::map<PageId, ModelPage> pages_ = AllFree();
  std::map<PageOwner, int> owners_;  // tenant
  std::map<PageOwner, std::vector<std::vector<int32_t>>> reserves_;
  uint64_t next_owner_ = 0;
};

TEST(PageBookProperty, RandomTransitionsAgreeWithAModel) {
  const PropertyRun run(kSanitized ? 10'000 : 60'000);
  constexpr int64_t kOperationsPerBook = 2'000;
  for (int64_t done = 0; done < run.operations; done += kOperationsPerBook) {
    PageBookModel model(run.seed + static_cast<uint64_t>(done));
    SCOPED_TRACE(::testing::Message() << "seed " << run.seed + static_cast<uint64_t>(done));
    for (int64_t i = 0; i < kOperationsPerBook; ++i) {
      model.Step();
      model.Check();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace annulus
