#include "engine/page_tier.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/scheduler/step_cost.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"

namespace annulus {
namespace {

using Documents = std::vector<std::pair<int32_t, DocumentSet>>;

// Computed once for a prompt: hashing a document's name for each page would stall the coordinator.
Documents DocumentsOf(const RequestSpec& spec) {
  Documents documents;
  for (const PromptDocument& document : spec.documents) {
    documents.emplace_back(document.begin, DocumentSet()).second.Add(document.content);
  }
  std::sort(documents.begin(), documents.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 1; i < documents.size(); ++i) documents[i].second.Add(documents[i - 1].second);
  return documents;
}

// The documents that begin before the position: a page that ends there holds or follows them.
DocumentSet DocumentsBefore(int32_t end, const Documents& documents) {
  const auto after = std::partition_point(documents.begin(), documents.end(),
                                          [&](const auto& each) { return each.first < end; });
  return after == documents.begin() ? DocumentSet() : std::prev(after)->second;
}

// Needs no memory itself.
absl::Status NoMemory() { return absl::Status(absl::StatusCode::kResourceExhausted, ""); }

// Null: the store has not got the page.
std::shared_ptr<PageStore> HoldIn(PageStore& store, const PageKey& key) {
  if (!store.Hold(key)) return nullptr;
  return {&store, [key](PageStore* holds) { holds->Release(key); }};
}

}  // namespace

PageTier::PageTier(std::vector<PageLevels::Level> levels, Options options, const PlanLimits& limits,
                   const RankPort& ranks, PageBook& book, PrefixReuse& prefixes)
    : identity_(HashOf(options.identity)),
      verify_(options.verify),
      limits_(limits),
      ranks_(ranks),
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
      levels_(LevelOptions(std::move(levels), std::move(options.wake))) {}

PageLevels::Options PageTier::LevelOptions(std::vector<PageLevels::Level> levels,
                                           std::function<void()> wake) {
  PageLevels::Options options;
  options.levels = std::move(levels);
  options.page_bytes = page_bytes_;
  options.compares = verify_ == KvVerify::kAll;
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

// ---- there

void PageTier::Offer(const Sequence& sequence, Request& request,
                     const std::vector<int32_t>& checkpoints) {
  if (!levels_.on()) return;
  const auto offer = [&] {
    OfferNow(sequence, request, checkpoints);
    return absl::OkStatus();
  };
  // Without memory for it, the pages stay where they are: the next step tries again.
  Guarded(offer, NoMemory).IgnoreError();
}

void PageTier::OfferNow(const Sequence& sequence, Request& request,
                        const std::vector<int32_t>& checkpoints) {
  auto found = offered_.find(request.id());
  if (found == offered_.end()) {
    Offered whole;  // there in full or, where memory runs out, not at all
    // Pages that a policy computed after pages not computed under it can serve no other request.
    // What a policy chooses by content can depend on how the prompt was cut into steps.
    whole.never = ClassOf(sequence.attention.get()) == AttentionClass::kContent ||
                  (sequence.attention != nullptr && request.cached_tokens() > 0);
    whole.use = levels_.NextUse();
    whole.documents = DocumentsOf(request.spec());
    whole.last = MarkFor(request.spec().tenant, sequence.attention.get(), sequence.rope_length);
    found = offered_.emplace(request.id(), std::move(whole)).first;
  }
  Offered& state = found->second;
  if (state.never) return;
  if (has_windows()) {
    for (const int32_t length : checkpoints) OfferPages(sequence, request, length, state);
    return;
  }
  const int32_t length = std::min(sequence.computed, sequence.prompt_length) / limits_.page_tokens *
                         limits_.page_tokens;
  if (length <= state.tokens) return;
  if (length > request.cached_tokens()) prefixes_.KeepUpTo(length, sequence, request, &state.kept);
  OfferPages(sequence, request, length, state);
}

void PageTier::OfferPages(const Sequence& sequence, const Request& request, int32_t length,
                          Offered& state) {
  const std::span<const int32_t> prompt(request.spec().prompt);
  const int32_t page = limits_.page_tokens;
  while (state.tokens < length) {
    PageMark next = state.last;
    Advance(prompt.subspan(state.tokens, page), next);
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      if (limits_.group_windows[g] > 0) continue;
      OfferPage(sequence, request, static_cast<int>(g), next, state);
    }
    // Last, and all at once: if memory ran out for a page, it is offered again under the same
    // chain. If only the chain moved on, the next page would be kept under this one's tokens.
    state.chain.push_back(next.chain);
    state.last = std::move(next);
    state.tokens += page;
  }
  for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
    if (limits_.group_windows[g] == 0) continue;
    const int32_t oldest = std::max(0, length - limits_.group_windows[g] + 1);
    for (int32_t first = oldest / page * page; first < length; first += page) {
      PageMark mark = state.last;
      mark.first_position = first;
      mark.parent = first == 0 ? RootOf(mark) : state.chain[first / page - 1];
      mark.chain = state.chain[first / page];
      const std::span<const int32_t> tokens = prompt.subspan(first, page);
      mark.tokens.assign(tokens.begin(), tokens.end());
      OfferPage(sequence, request, static_cast<int>(g), std::move(mark), state);
    }
  }
}

void PageTier::OfferPage(const Sequence& sequence, const Request& request, int group, PageMark mark,
                         const Offered& state) {
  const int64_t use = state.use;
  mark.group = group;
  const PageKey key = KeyOf(mark);
  const bool known = levels_.Find(key).has_value();
  if (known) levels_.Touch(key, use);
  mark.documents = DocumentsBefore(mark.first_position + limits_.page_tokens, state.documents);
  // Pages computed before this request were compared at that time.
  const bool compare =
      known && verify_ == KvVerify::kAll && mark.first_position >= request.cached_tokens();
  if (!compare && levels_.HaveAll(key, mark.documents)) return;
  if (std::ssize(leaving_[0]) >= most_leaving_) return;
  const auto waiting = waiting_.find(key);
  if (waiting != waiting_.end()) {
    if (waiting->second.documents.Holds(mark.documents)) return;
    mark.documents.Add(waiting->second.documents);
  }
  const std::vector<PageEntry>& entries = sequence.groups[group].entries;
  const auto entry =
      std::lower_bound(entries.begin(), entries.end(), mark.first_position,
                       [](const PageEntry& e, int32_t first) { return e.first_position < first; });
  if (entry == entries.end() || entry->first_position != mark.first_position) return;
  PageId id{entry->rank, entry->page};
  PageBook::Page page = book_.page(id);
  if (page.state != PageState::kCached && waiting != waiting_.end()) {
    // The request computed what was cached already: that one stays so.
    id = waiting->second.page;
    page = book_.page(id);
    if (page.generation != waiting->second.generation) return;
  }
  if (page.state != PageState::kCached) return;
  mark.coverage = page.coverage;
  mark.asked = request.documents_found();
  leaving_[0].push_back({std::move(mark), id, page.generation, page.hash, request.spec().tenant,
                         TenantBytes(request.spec().tenant_room), use, compare, nullptr});
  absl::Cleanup undo = [&] { leaving_[0].pop_back(); };
  Waiting& offered = waiting_[key];
  std::move(undo).Cancel();
  offered = {leaving_[0].back().mark.documents, offered.offers + 1, id, page.generation};
}

PageTier::Counts PageTier::TenantBytes(const TenantRoom& room) const {
  Counts most;
  most.fill(std::numeric_limits<int64_t>::max());
  for (int level = 0; level < levels_.size(); ++level) {
    const bool host = levels_[level].kind == TierKind::kHost;
    const int64_t bytes = host ? room.host_bytes : room.disk_bytes;
    if (bytes > 0) most[level] = bytes;
  }
  return most;
}

void PageTier::EndOffer(const PageMark& mark) {
  const auto found = waiting_.find(KeyOf(mark));
  ANNULUS_CHECK(found != waiting_.end()) << "an offer that nobody made";
  if (--found->second.offers == 0) waiting_.erase(found);
}

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

void PageTier::StartWrites() {
  for (int level = 0; level < levels_.size(); ++level) {
    std::deque<Leaving>& leaving = leaving_[level];
    const auto writes = [&] {
      return std::count_if(writes_.begin(), writes_.end(),
                           [&](const auto& entry) { return entry.second.level == level; });
    };
    while (!leaving.empty() && writes() < most_writes_) {
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
  const PageOwner owner = next_owner_++;
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
  levels_.mover(level).Write({.ticket = owner,
                              .mark = next.mark,
                              .pieces = held ? PiecesOf(next.page) : PagePieces(),
                              .use = next.use,
                              .compare = next.compare,
                              .from = next.from.get()});
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
  // First: the mover may read what is held alone.
  const std::vector<uint64_t> dropped = levels_.mover(level).DropWrites();
  for (auto& [owner, write] : writes_) {
    if (write.level != level) continue;
    if (write.held) book_.Release(owner);
    write.held = false;
  }
  for (auto ticket = dropped.rbegin(); ticket != dropped.rend(); ++ticket) {
    Leaving page = std::move(writes_.extract(*ticket).mapped().page);
    const auto wait = [&] {
      leaving_[level].push_front(std::move(page));
      return absl::OkStatus();
    };
    // Without memory to wait, it may be offered again.
    if (!Guarded(wait, NoMemory).ok()) EndOffer(page.mark);
  }
  return true;
}

void PageTier::TakeWritten(const PageMover::Done& done) {
  const auto found = writes_.find(done.ticket);
  ANNULUS_CHECK(found != writes_.end()) << "a write that nobody asked for: " << done.ticket;
  Writing write = std::move(found->second);
  if (write.held) book_.Release(done.ticket);
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
  const auto restores = std::ssize(restores_);
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
  return std::ssize(restores_) < restores;
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
  int64_t bytes = levels_.bytes();
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
