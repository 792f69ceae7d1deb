#include "engine/memory/page_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

constexpr std::array<absl::string_view, kPageStates> kStateNames = {
    "free", "reserved", "partial", "complete", "cached", "loading", "lost"};

bool IsPin(PageOwner owner) { return owner.kind == PageOwner::Kind::kPin; }

constexpr uint8_t Bit(PageState state) { return uint8_t{1} << static_cast<int>(state); }

// [from]: the states that a page may take next.
constexpr std::array<uint8_t, kPageStates> kNext = {
    uint8_t(Bit(PageState::kReserved) | Bit(PageState::kLoading)),
    uint8_t(Bit(PageState::kPartial) | Bit(PageState::kFree)),
    uint8_t(Bit(PageState::kComplete) | Bit(PageState::kLost) | Bit(PageState::kFree)),
    uint8_t(Bit(PageState::kCached) | Bit(PageState::kReserved) | Bit(PageState::kLost) |
            Bit(PageState::kFree)),
    uint8_t(Bit(PageState::kComplete) | Bit(PageState::kFree)),
    uint8_t(Bit(PageState::kCached) | Bit(PageState::kFree)),
    uint8_t(Bit(PageState::kPartial) | Bit(PageState::kFree)),
};

}  // namespace

absl::string_view PageStateName(PageState state) { return kStateNames[static_cast<size_t>(state)]; }

bool MayBecome(PageState from, PageState to) {
  return (kNext[static_cast<size_t>(from)] & Bit(to)) != 0;
}

PageBook::PageBook(const std::vector<int32_t>& pages, std::vector<int32_t> group_windows,
                   Hooks hooks)
    : group_windows_(std::move(group_windows)),
      hooks_(std::move(hooks)),
      ranks_(pages.size()),
      usable_ranks_(ranks()) {
  for (size_t rank = 0; rank < pages.size(); ++rank) {
    ANNULUS_CHECK(pages[rank] >= 0) << pages[rank] << " pages of rank " << rank;
    Rank& table = ranks_[rank];
    table.records.resize(pages[rank]);
    table.free.reserve(pages[rank]);
    // Low ids first: a lightly used pool touches only the beginning of its slab.
    for (int32_t page = pages[rank] - 1; page >= 0; --page) table.free.push_back(page);
    table.counts.free = pages[rank];
  }
}

PageBook::~PageBook() {
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    ANNULUS_CHECK(counts(rank).free == counts(rank).total())
        << "the page book ends while " << counts(rank).total() - counts(rank).free << " of "
        << counts(rank).total() << " pages of rank " << rank << " have owners";
  }
}

PageBook::Record& PageBook::At(PageId id) {
  return const_cast<Record&>(std::as_const(*this).At(id));
}

const PageBook::Record& PageBook::At(PageId id) const {
  ANNULUS_CHECK(id.rank >= 0 && id.rank < ranks()) << "rank " << id.rank << " of " << ranks();
  const std::vector<Record>& records = ranks_[id.rank].records;
  ANNULUS_CHECK(id.page >= 0 && id.page < std::ssize(records))
      << "page " << id.page << " of " << records.size() << " of rank " << id.rank;
  return records[id.page];
}

std::string PageBook::Describe(PageId id) const {
  const Record& record = At(id);
  return absl::StrCat("page ", id.page, " of rank ", id.rank, " is ", PageStateName(record.state),
                      " with ", record.holders, " holders and ", record.keepers,
                      " keepers; reserved last for ", record.owner.ToString(), ", freed ",
                      record.generation, " times");
}

PageBook::Holding& PageBook::HoldingOf(PageOwner owner) {
  const auto found = holdings_.find(owner);
  ANNULUS_CHECK(found != holdings_.end()) << owner << " is not open";
  return found->second;
}

int32_t PageBook::Intern(const TenantId& tenant) {
  const auto found = std::find(tenants_.begin(), tenants_.end(), tenant);
  if (found == tenants_.end()) {
    of_tenants_.reserve(tenants_.size() + 1);
    tenants_.push_back(tenant);
    of_tenants_.emplace_back();
    return static_cast<int32_t>(tenants_.size()) - 1;
  }
  return static_cast<int32_t>(found - tenants_.begin());
}

int64_t& PageBook::CountOf(const Record& record, PageCounts& counts) {
  if (record.state == PageState::kFree) return counts.free;
  if (record.keepers > 0) return counts.cached;
  switch (record.use) {
    case PageUse::kFull:
      return counts.full;
    case PageUse::kWindow:
      return counts.window;
    case PageUse::kSummary:
      return counts.summaries;
    case PageUse::kNone:
      return counts.reserved;
  }
  return counts.reserved;
}

template <typename Change>
void PageBook::Update(PageId id, const Change& change) {
  Record& record = At(id);
  Rank& rank = ranks_[id.rank];
  const auto add = [&](int sign) {
    CountOf(record, rank.counts) += sign;
    const bool unheld = record.keepers > 0 && record.holders == 0;
    if (unheld) rank.unheld += sign;
    if (record.pins > 0) rank.pinned += sign;
    if (record.tenant < 0) return;
    TenantPages& own = of_tenants_[record.tenant];
    own.all += sign;
    if (unheld) own.unheld += sign;
  };
  add(-1);
  change(record);
  add(1);
}

void PageBook::Become(PageId id, PageState state) {
  ANNULUS_CHECK(MayBecome(At(id).state, state))
      << Describe(id) << ": it cannot become " << PageStateName(state);
  At(id).state = state;
}

void PageBook::Open(PageOwner owner, const TenantId& tenant) {
  const bool added = holdings_.try_emplace(owner).second;
  ANNULUS_CHECK(added) << owner << " is open already";
  HoldingOf(owner).tenant = Intern(tenant);
}

PageOwner PageBook::OpenPin(const TenantId& tenant) {
  const PageOwner owner{PageOwner::Kind::kPin, next_pin_++};
  Open(owner, tenant);
  return owner;
}

int32_t PageBook::Take(PageOwner owner, Holding& holding, int32_t rank, PageUse use,
                       PageState state) {
  ANNULUS_CHECK(!IsPin(owner)) << owner << " may only hold pages";
  Rank& table = ranks_[rank];
  const int32_t page = table.free.back();
  const PageId id{rank, page};
  holding.pages.push_back(id);  // memory runs out before anything has changed, or not at all
  table.free.pop_back();
  if (hooks_.on_take) hooks_.on_take({id, At(id).owner, At(id).generation});
  Update(id, [&](Record& record) {
    Become(id, state);
    record.owner = owner;
    record.holders = 1;
    record.tenant = holding.tenant;
    record.use = use;
  });
  table.high_water =
      std::max(table.high_water, static_cast<int32_t>(table.records.size() - table.free.size()));
  return page;
}

void PageBook::Reserve(PageOwner owner, int32_t rank, int32_t count) {
  ANNULUS_CHECK(count >= 0 && count <= free_count(rank))
      << count << " pages of rank " << rank << ", " << free_count(rank) << " are free";
  Holding& holding = HoldingOf(owner);
  std::vector<int32_t>& reserve = holding.reserve[rank];
  reserve.reserve(reserve.size() + count);
  holding.pages.reserve(holding.pages.size() + count);
  for (int32_t i = 0; i < count; ++i) {
    reserve.push_back(Take(owner, holding, rank, PageUse::kNone));
  }
}

std::vector<int32_t> PageBook::ReserveSummaries(PageOwner owner, int32_t rank, int32_t count) {
  ANNULUS_CHECK(count >= 0 && count <= free_count(rank))
      << count << " pages of rank " << rank << ", " << free_count(rank) << " are free";
  Holding& holding = HoldingOf(owner);
  holding.pages.reserve(holding.pages.size() + count);
  std::vector<int32_t> ids;
  ids.reserve(count);
  for (int32_t i = 0; i < count; ++i) ids.push_back(Take(owner, holding, rank, PageUse::kSummary));
  return ids;
}

PageId PageBook::Load(PageOwner owner, int32_t rank, int group) {
  ANNULUS_CHECK(free_count(rank) > 0) << "no page of rank " << rank << " is free";
  const PageUse use = group_windows_[group] > 0 ? PageUse::kWindow : PageUse::kFull;
  const PageId id{rank, Take(owner, HoldingOf(owner), rank, use, PageState::kLoading)};
  At(id).group = static_cast<int16_t>(group);
  return id;
}

std::span<const int32_t> PageBook::reserve(PageOwner owner, int32_t rank) const {
  const auto holding = holdings_.find(owner);
  ANNULUS_CHECK(holding != holdings_.end()) << owner << " is not open";
  const auto found = holding->second.reserve.find(rank);
  if (found == holding->second.reserve.end()) return {};
  return found->second;
}

void PageBook::Hold(PageOwner owner, PageId id) {
  Holding& holding = HoldingOf(owner);
  ANNULUS_CHECK(At(id).state == PageState::kCached || At(id).state == PageState::kLoading)
      << Describe(id) << ": look-ups cannot find it";
  ANNULUS_CHECK(At(id).tenant == holding.tenant)
      << Describe(id) << ": it belongs to another tenant than " << owner;
  holding.pages.push_back(id);
  Update(id, [owner](Record& record) {
    ++record.holders;
    if (IsPin(owner)) ++record.pins;
  });
}

void PageBook::BeginWrite(PageOwner owner, PageId id, int group) {
  std::vector<int32_t>& reserve = HoldingOf(owner).reserve[id.rank];
  ANNULUS_CHECK(!reserve.empty() && reserve.back() == id.page)
      << Describe(id) << ": it is not the next in reserve for " << owner;
  reserve.pop_back();
  Update(id, [&](Record& record) {
    Become(id, PageState::kPartial);
    record.group = static_cast<int16_t>(group);
    record.use = group_windows_[group] > 0 ? PageUse::kWindow : PageUse::kFull;
  });
}

void PageBook::Complete(PageId id) {
  Update(id, [&](Record&) { Become(id, PageState::kComplete); });
}

bool PageBook::Recycle(PageOwner owner, PageId id) {
  ANNULUS_CHECK(!IsPin(owner)) << owner << " may only hold pages";
  const Record& record = At(id);
  if (record.keepers > 0 || record.holders > 1) return false;
  // A page of an earlier request whose keepers have gone meanwhile: it has only this holder, too.
  Update(id, [&](Record& changed) {
    Become(id, PageState::kReserved);
    changed.use = PageUse::kNone;
    changed.group = -1;
    changed.owner = owner;
    changed.known = false;
  });
  HoldingOf(owner).reserve[id.rank].push_back(id.page);
  return true;
}

void PageBook::Lose(PageId id) {
  ANNULUS_CHECK(At(id).keepers == 0) << Describe(id) << ": look-ups would find it";
  if (At(id).state == PageState::kLost) return;
  Update(id, [&](Record&) { Become(id, PageState::kLost); });
}

void PageBook::Repair(PageId id) {
  ANNULUS_CHECK(At(id).state == PageState::kLost) << Describe(id) << ": it has what was written";
  Update(id, [&](Record&) { Become(id, PageState::kPartial); });
}

void PageBook::FreeIfUnowned(PageId id) {
  Record& record = At(id);
  if (record.holders > 0 || record.keepers > 0) return;
  const uint32_t generation = record.generation + 1;
  const PageOwner owner = record.owner;
  Update(id, [&](Record& changed) {
    Become(id, PageState::kFree);
    changed = Record();
    changed.owner = owner;
    changed.generation = generation;
  });
  ranks_[id.rank].free.push_back(id.page);
  if (hooks_.on_free) hooks_.on_free({id, owner, generation});
}

void PageBook::Release(PageOwner owner) {
  HoldingOf(owner);
  const Holding holding = std::move(holdings_.extract(owner).mapped());
  for (const PageId id : holding.pages) {
    ANNULUS_CHECK(At(id).holders > 0) << Describe(id) << ": " << owner << " holds it";
    Update(id, [owner](Record& record) {
      --record.holders;
      if (IsPin(owner)) --record.pins;
    });
    FreeIfUnowned(id);
  }
}

void PageBook::Keep(PageId id, const ContentHash& hash, std::optional<double> coverage) {
  Update(id, [&](Record& record) {
    if (record.state != PageState::kCached) Become(id, PageState::kCached);
    ++record.keepers;
    if (record.known) return;
    record.known = true;
    record.hash = hash;
    record.coverage = coverage.value_or(-1);
  });
}

void PageBook::Unkeep(PageId id) {
  ANNULUS_CHECK(At(id).keepers > 0) << Describe(id) << ": nobody keeps it";
  Update(id, [&](Record& record) {
    if (--record.keepers == 0 && record.holders > 0) Become(id, PageState::kComplete);
  });
  FreeIfUnowned(id);
}

PageBook::TenantPages PageBook::pages_of(const TenantId& tenant) const {
  const auto found = std::find(tenants_.begin(), tenants_.end(), tenant);
  return found == tenants_.end() ? TenantPages() : of_tenants_[found - tenants_.begin()];
}

PageBook::Page PageBook::page(PageId id) const {
  const Record& record = At(id);
  Page page;
  page.state = record.state;
  page.use = record.use;
  page.group = record.group;
  page.owner = record.owner;
  page.generation = record.generation;
  page.holders = record.holders;
  page.keepers = record.keepers;
  if (record.tenant >= 0) page.tenant = &tenants_[record.tenant];
  page.hash = record.hash;
  if (record.coverage >= 0) page.coverage = record.coverage;
  return page;
}

}  // namespace annulus
