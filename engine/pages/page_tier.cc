#include "engine/pages/page_tier.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"

namespace annulus {
namespace {

// Needs no memory itself.
absl::Status NoMemory() { return absl::Status(absl::StatusCode::kResourceExhausted, ""); }

PageOwner WriteOwner(uint64_t ticket) { return {PageOwner::Kind::kTier, ticket}; }

// Null: the store has not got the page.
std::shared_ptr<PageStore> HoldIn(PageStore& store, const PageKey& key) {
  if (!store.Hold(key)) return nullptr;
  return {&store, [key](PageStore* holds) { holds->Release(key); }};
}

}  // namespace

PageTier::PageTier(std::vector<PageLevels::Level> levels, Options options, const PlanLimits& limits,
                   const RankPort& ranks, const Clock& clock, PageBook& book, PrefixReuse& prefixes)
    : identity_(HashOf(options.identity)),
      other_identities_(std::move(options.other_identities)),
      verify_(options.verify),
      comparer_(options.comparer),
      limits_(limits),
      ranks_(ranks),
      clock_(clock),
      book_(book),
      prefixes_(prefixes),
      page_bytes_(ranks.local_pages(0)->geometry().stored_bytes()),
      // Two chunks of a prompt.
      most_writes_(std::max<int64_t>(16, 2 * int64_t{limits.ranks} * limits.prefill_rows_per_rank /
                                             limits.page_tokens *
                                             std::ssize(limits.group_windows))),
      most_leaving_([&] {
        int64_t pages = 0;
        for (int rank = 0; rank < book.ranks(); ++rank) pages += book.counts(rank).total();
        return pages;
      }()),
      levels_(LevelOptions(std::move(levels), std::move(options.wake))) {
  lingering_.reserve(static_cast<size_t>(PageLevels::kMostLevels) * 2 * PageMover::kThreads);
}

PageLevels::Options PageTier::LevelOptions(std::vector<PageLevels::Level> levels,
                                           std::function<void()> wake) {
  PageLevels::Options options;
  options.levels = std::move(levels);
  options.page_bytes = page_bytes_;
  options.compares = verify_ == KvVerify::kAll;
  options.clock = &clock_;
  // One word is enough until the coordinator has heard it: its queue has few places.
  options.wake = [this, wake = std::move(wake)] {
    if (woken_.exchange(true)) return;
    absl::Cleanup unheard = [this] { woken_ = false; };  // without memory for it
    wake();
    std::move(unheard).Cancel();
  };
  return options;
}

PageTier::~PageTier() {
  levels_.Stop();
  for (const auto& [owner, write] : writes_) {
    if (write.held) book_.Release(owner);
  }
  for (const auto& [owner, restore] : restores_) book_.Release(owner);
  for (const Lingering& each : lingering_) book_.Release(each.owner);
}

bool PageTier::has_windows() const {
  return std::any_of(limits_.group_windows.begin(), limits_.group_windows.end(),
                     [](int32_t window) { return window > 0; });
}

PagePieces PageTier::PiecesOf(PageId id) const {
  const KvPool& pool = *ranks_.local_pages(id.rank);
  PagePieces pieces;
  for (int layer = 0; layer < pool.geometry().layers_per_page; ++layer) {
    pieces.emplace_back(pool.LayerPage(id.page, layer), pool.geometry().layer_page_bytes);
  }
  return pieces;
}

// What stands before the first page.
PageMark PageTier::MarkFor(const TenantId& tenant, const AttentionAssignment* policy,
                           int64_t rope) const {
  PageMark mark;
  mark.identity = identity_;
  mark.policy =
      HashOf(absl::StrCat(policy == nullptr ? "dense" : AssignmentText(*policy), "/rope", rope));
  mark.tenant = HashOf(tenant.name());
  mark.chain = RootOf(mark);
  mark.first_position = -limits_.page_tokens;
  return mark;
}

void PageTier::Advance(std::span<const int32_t> tokens, PageMark& mark) {
  mark.parent = mark.chain;
  mark.chain = ChainOf(mark.parent, tokens);
  mark.first_position += static_cast<int32_t>(tokens.size());
  mark.tokens.assign(tokens.begin(), tokens.end());
}

// ---- saving

bool PageTier::IsThere(const Leaving& page) const {
  if (page.from != nullptr) return true;
  const PageBook::Page now = book_.page(page.page);
  return now.state == PageState::kCached && now.generation == page.generation &&
         now.hash == page.hash;
}

bool PageTier::Takes(int level, const Leaving& page) const {
  const PageStore& store = levels_.store(level);
  if (!store.on() || page.compare) return store.on();
  if (store.Has(KeyOf(page.mark), page.mark.documents)) return false;
  // What there is no room for is not copied for nothing: a text may be larger than a level.
  return level + 1 == levels_.size() || store.HasRoom(page.mark, page_bytes_, page.use);
}

int64_t PageTier::WritesTo(int level) const {
  return std::count_if(writes_.begin(), writes_.end(),
                       [&](const auto& entry) { return entry.second.level == level; });
}

void PageTier::ShowWaiting() {
  // From the last on: a page that passes on is never missing in between.
  for (int level = levels_.size() - 1; level >= 0; --level) {
    const int64_t pages = std::ssize(leaving_[level]) + WritesTo(level);
    levels_.metrics(level).waiting.Set(static_cast<double>(pages));
  }
}

void PageTier::StartWrites() {
  for (int level = 0; level < levels_.size(); ++level) {
    std::deque<Leaving>& leaving = leaving_[level];
    while (!leaving.empty() && WritesTo(level) < most_writes_) {
      Leaving& next = leaving.front();
      next.mark.tenant_bytes = next.tenant_bytes[level];
      if (!IsThere(next)) {
        EndOffer(next.mark);
        leaving.pop_front();
      } else if (Takes(level, next)) {
        StartWrite(level);
      } else {
        Leaving page = std::move(next);
        leaving.pop_front();
        PassOn(std::move(page), level);
      }
    }
  }
}

// The page that waits first; without memory for it, it goes on waiting.
void PageTier::StartWrite(int level) {
  Leaving& next = leaving_[level].front();
  const PageOwner owner = NewOwner();
  absl::Cleanup undo = [&] {
    if (book_.IsOpen(owner)) book_.Release(owner);
    writes_.erase(owner);
  };
  const bool held = next.from == nullptr;
  if (held) {
    book_.Open(owner, next.tenant);
    book_.Hold(owner, next.page);
  }
  Writing& writing = writes_[owner];
  levels_.mover(level).Write({.ticket = owner.id,
                              .mark = next.mark,
                              .pieces = held ? PiecesOf(next.page) : PagePieces(),
                              .use = next.use,
                              .compare = next.compare,
                              .from = next.from.get(),
                              .id = next.page});
  std::move(undo).Cancel();
  writing = {std::move(next), level, held};
  leaving_[level].pop_front();
}

void PageTier::PassOn(Leaving page, int level) {
  const int next = level + 1;
  const bool ends = next == levels_.size() || !levels_.store(next).on();
  const auto pass = [&] {
    page.from = HoldIn(levels_.store(level), KeyOf(page.mark));
    leaving_[next].push_back(std::move(page));
    return absl::OkStatus();
  };
  // Without memory to wait, it may be offered again.
  if (ends || !Guarded(pass, NoMemory).ok()) EndOffer(page.mark);
}

bool PageTier::LetGoOfWrites() {
  bool held = false;
  for (int level = 0; level < levels_.size(); ++level) held = LetGoOfWritesTo(level) || held;
  return held;
}

bool PageTier::LetGoOfWritesTo(int level) {
  const bool held = std::any_of(writes_.begin(), writes_.end(), [&](const auto& entry) {
    return entry.second.level == level && entry.second.held;
  });
  if (!held) return false;
  // First: the mover may read what is held.
  const std::vector<uint64_t> dropped = levels_.mover(level).DropWrites();
  for (auto& [owner, write] : writes_) {
    if (write.level != level) continue;
    if (write.held) ReleaseWrite(owner);
    write.held = false;
  }
  for (auto ticket = dropped.rbegin(); ticket != dropped.rend(); ++ticket) {
    Leaving page = std::move(writes_.extract(WriteOwner(*ticket)).mapped().page);
    const auto wait = [&] {
      leaving_[level].push_front(std::move(page));
      return absl::OkStatus();
    };
    // Without memory to wait, it may be offered again.
    if (!Guarded(wait, NoMemory).ok()) EndOffer(page.mark);
  }
  return true;
}

void PageTier::ReleaseWrite(PageOwner owner) {
  ReleaseLingering();
  if (!levels_.IsCopying(owner.id)) return book_.Release(owner);
  lingering_.push_back({owner, owner.id});
}

// A restore may have all of memory and a device copy two pages of it: each gets an owner of its
// own, and the others are free at once.
void PageTier::ReleaseRestore(PageOwner owner) {
  ReleaseLingering();
  const auto hold = [&] {
    for (const PageMover::Copy& copy : levels_.CopiesOf(owner.id)) {
      const PageOwner own = NewOwner();
      absl::Cleanup undo = [&] {
        if (book_.IsOpen(own)) book_.Release(own);
      };
      book_.Open(own, *book_.page(copy.id).tenant);
      book_.Hold(own, copy.id);
      std::move(undo).Cancel();
      lingering_.push_back({own, copy.ticket});
    }
    return absl::OkStatus();
  };
  if (Guarded(hold, NoMemory).ok()) return book_.Release(owner);
  lingering_.push_back({owner, std::nullopt});
}

void PageTier::ReleaseLingering() {
  const auto released = std::erase_if(lingering_, [this](const Lingering& each) {
    const bool copying = each.ticket.has_value() ? levels_.IsCopying(*each.ticket)
                                                 : levels_.IsCopyingFor(each.owner.id);
    if (!copying) book_.Release(each.owner);
    return !copying;
  });
  if (released > 0) has_room_again_ = true;
}

void PageTier::TakeWritten(const PageMover::Done& done) {
  const auto found = writes_.find(WriteOwner(done.ticket));
  ANNULUS_CHECK(found != writes_.end()) << "a write that nobody asked for: " << done.ticket;
  Writing write = std::move(found->second);
  if (write.held) book_.Release(WriteOwner(done.ticket));
  writes_.erase(found);
  const TierMetrics& metrics = levels_.metrics(write.level);
  metrics.write_seconds.Add(done.seconds);
  if (done.fresh) metrics.written_bytes.Add(page_bytes());
  if (done.compared) metrics.checks.Increment();
  PassOn(std::move(write.page), write.level);
}

// The level is off: what it was to carry goes on to the next or stays where it is, and nobody
// waits.
void PageTier::StopCarrying(int level) {
  LetGoOfWritesTo(level);
  std::vector<PageOwner> reading;
  for (const auto& [owner, restore] : restores_) {
    if (restore.phase == Phase::kReading && restore.left_on[level] > 0) reading.push_back(owner);
  }
  for (const PageOwner owner : reading) StopReading(owner);
}

bool PageTier::Turn() {
  woken_ = false;
  held_until_ = SteadyTime::max();
  const auto restores = std::ssize(restores_);
  ReleaseLingering();
  // Each part runs by itself, so that one that finds no memory does not stop the others. The next
  // turn does what was left undone, and a restore that lacks one of its pages becomes overdue.
  const auto try_to = [&](const auto& part) {
    const auto run = [&] {
      part();
      return absl::OkStatus();
    };
    Guarded(run, NoMemory).IgnoreError();
  };
  for (int level = 0; level < levels_.size(); ++level) {
    std::vector<PageMover::Done> all;
    try_to([&] { all = levels_.mover(level).TakeDone(); });
    for (const PageMover::Done& done : all) {
      try_to([&] {
        if (done.read) {
          TakeRead(done, level);
        } else {
          TakeWritten(done);
        }
      });
    }
  }
  try_to([&] { CarryOn(); });
  ShowWaiting();
  return std::exchange(has_room_again_, false) || std::ssize(restores_) < restores;
}

void PageTier::CarryOn() {
  levels_.TurnOffHung();
  EndOverdue();
  for (int level = 0; level < levels_.size(); ++level) {
    if (!levels_.store(level).on()) StopCarrying(level);
  }
  StartWrites();
  if (!levels_.on()) offered_.clear();
}

int64_t PageTier::bytes() const {
  int64_t bytes = levels_.bytes() + (comparer_ == nullptr ? 0 : comparer_->buffer_bytes());
  const auto mark = static_cast<int64_t>(sizeof(Leaving) + 200 + limits_.page_tokens * 4);
  for (const std::deque<Leaving>& leaving : leaving_) bytes += std::ssize(leaving) * mark;
  bytes += std::ssize(writes_) * 2 * mark;  // the mover has marks of its own
  for (const auto& [id, state] : offered_) bytes += std::ssize(state.chain) * 32 + 200;
  for (const auto& [owner, restore] : restores_) {
    bytes += std::ssize(restore.beginning.marks) * 2 * mark +
             std::ssize(restore.tokens) * static_cast<int64_t>(sizeof(int32_t));
  }
  bytes += std::ssize(standings_) * static_cast<int64_t>(sizeof(StandingState) + 64);
  return bytes + std::ssize(arriving_) * static_cast<int64_t>(sizeof(Arriving) + 64);
}

}  // namespace annulus
