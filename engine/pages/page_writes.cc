#include "engine/pages/page_writes.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "engine/base/try_to.h"
#include "engine/pages/page_pieces.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

PageOwner OwnerOfWrite(uint64_t ticket) { return {PageOwner::Kind::kTier, ticket}; }

// Null: the store has not got the page.
std::shared_ptr<PageStore> HoldIn(PageStore& store, const PageKey& key) {
  if (!store.Hold(key)) return nullptr;
  return {&store, [key](PageStore* holds) { holds->Release(key); }};
}

int64_t AllPages(const PageBook& book) {
  int64_t pages = 0;
  for (int rank = 0; rank < book.ranks(); ++rank) pages += book.counts(rank).total();
  return pages;
}

}  // namespace

PageWrites::PageWrites(const PlanLimits& limits, const RankPort& ranks, PageLevels& levels,
                       PageBook& book, LingeringPages& lingering)
    : limits_(limits),
      ranks_(ranks),
      levels_(levels),
      book_(book),
      lingering_(lingering),
      // Two chunks of a prompt.
      most_writes_(std::max<int64_t>(16, 2 * int64_t{limits.ranks} * limits.prefill_rows_per_rank /
                                             limits.page_tokens *
                                             std::ssize(limits.group_windows))),
      most_waiting_(AllPages(book)) {}

void PageWrites::Offer(Page page) {
  waiting_[0].push_back(std::move(page));
  absl::Cleanup undo = [&] { waiting_[0].pop_back(); };
  const Page& queued = waiting_[0].back();
  Offers& offers = offers_[KeyOf(queued.mark)];
  std::move(undo).Cancel();
  offers = {queued.mark.documents, offers.count + 1, queued.page, queued.generation};
}

const PageWrites::Offers* PageWrites::Find(const PageKey& key) const {
  const auto found = offers_.find(key);
  return found == offers_.end() ? nullptr : &found->second;
}

void PageWrites::EndOffer(const PageMark& mark) {
  const auto found = offers_.find(KeyOf(mark));
  ANNULUS_CHECK(found != offers_.end()) << "an offer that nobody made";
  if (--found->second.count == 0) offers_.erase(found);
}

bool PageWrites::IsThere(const Page& page) const {
  if (page.from != nullptr) return true;
  const PageBook::Page now = book_.page(page.page);
  return now.state == PageState::kCached && now.generation == page.generation &&
         now.hash == page.hash;
}

bool PageWrites::Takes(int level, const Page& page) const {
  const PageStore& store = levels_.store(level);
  if (!store.on() || page.compare) return store.on();
  const PageKey key = store.KeyBeside(KeyOf(page.mark), page.page.rank);
  if (store.Has(key, page.mark.documents)) return false;
  // What there is no room for is not copied for nothing: a text may be larger than a level.
  return level + 1 == levels_.size() ||
         store.HasRoom(page.mark, static_cast<uint64_t>(levels_.page_bytes()), page.use);
}

int64_t PageWrites::WritesTo(int level) const {
  return std::count_if(writes_.begin(), writes_.end(),
                       [&](const auto& entry) { return entry.second.level == level; });
}

void PageWrites::Show() const {
  // From the last on: a page that passes on is never missing in between.
  for (int level = levels_.size() - 1; level >= 0; --level) {
    const int64_t pages = std::ssize(waiting_[level]) + WritesTo(level);
    levels_.metrics(level).waiting.Set(static_cast<double>(pages));
  }
}

void PageWrites::Start() {
  for (int level = 0; level < levels_.size(); ++level) {
    std::deque<Page>& waiting = waiting_[level];
    while (!waiting.empty() && WritesTo(level) < most_writes_) {
      Page& next = waiting.front();
      const PageKey key = KeyOf(next.mark);
      if (IsLost(key)) break;  // what that write leaves is dropped first
      next.mark.tenant_bytes = next.tenant_bytes[level];
      if (!IsThere(next) || levels_.IsHidden(key)) {
        EndOffer(next.mark);
        waiting.pop_front();
      } else if (Takes(level, next)) {
        StartWrite(level);
      } else {
        Page page = std::move(next);
        waiting.pop_front();
        PassOn(std::move(page), level);
      }
    }
  }
}

bool PageWrites::IsLost(const PageKey& key) const {
  return levels_.IsHidden(key) &&
         std::any_of(writes_.begin(), writes_.end(), [&](const auto& entry) {
           return entry.second.lost && KeyOf(entry.second.page.mark) == key;
         });
}

// The first waiting page; it keeps waiting if there is no memory for it.
void PageWrites::StartWrite(int level) {
  Page& next = waiting_[level].front();
  const PageOwner owner = levels_.NewOwner();
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
                              .pieces = held ? PiecesOf(ranks_, next.page) : PagePieces(),
                              .use = next.use,
                              .compare = next.compare,
                              .from = next.from.get(),
                              .id = next.page});
  std::move(undo).Cancel();
  writing = {std::move(next), level, held};
  waiting_[level].pop_front();
}

void PageWrites::PassOn(Page page, int level) {
  const int next = level + 1;
  const bool ends = next == levels_.size() || !levels_.store(next).on();
  const auto pass = [&] {
    page.from = HoldIn(levels_.store(level), KeyOf(page.mark));
    waiting_[next].push_back(std::move(page));
  };
  // Without memory to wait, it may be offered again.
  if (ends || !TryTo(pass)) EndOffer(page.mark);
}

void PageWrites::TakeDone(const PageMover::Done& done) {
  const auto found = writes_.find(OwnerOfWrite(done.ticket));
  ANNULUS_CHECK(found != writes_.end()) << "a write that nobody asked for: " << done.ticket;
  Writing write = std::move(found->second);
  if (write.held) book_.Release(found->first);
  writes_.erase(found);
  const TierMetrics& metrics = levels_.metrics(write.level);
  metrics.write_seconds.Add(done.seconds);
  if (done.fresh) metrics.written_bytes.Add(levels_.page_bytes());
  if (done.compared) metrics.checks.Increment();
  if (write.lost) {
    const PageKey key = KeyOf(write.page.mark);
    levels_.Drop({&key, 1});  // if this throws, it stays hidden
    return levels_.Reveal(key);
  }
  PassOn(std::move(write.page), write.level);
}

bool PageWrites::LetGo() {
  bool held = false;
  for (int level = 0; level < levels_.size(); ++level) held = LetGoOf(level) || held;
  return held;
}

bool PageWrites::LetGoOf(int level) {
  const bool held = std::any_of(writes_.begin(), writes_.end(), [&](const auto& entry) {
    return entry.second.level == level && entry.second.held;
  });
  if (!held) return false;
  // First: the mover may read what is held.
  const std::vector<uint64_t> dropped = levels_.mover(level).DropWrites();
  for (auto& [owner, write] : writes_) {
    if (write.level != level) continue;
    if (write.held) lingering_.ReleaseWrite(owner);
    write.held = false;
  }
  for (auto ticket = dropped.rbegin(); ticket != dropped.rend(); ++ticket) {
    Writing write = std::move(writes_.extract(OwnerOfWrite(*ticket)).mapped());
    if (write.lost) {  // it had not begun
      levels_.Reveal(KeyOf(write.page.mark));
      continue;
    }
    Page page = std::move(write.page);
    const auto wait = [&] { waiting_[level].push_front(std::move(page)); };
    // Without memory to wait, it may be offered again.
    if (!TryTo(wait)) EndOffer(page.mark);
  }
  return true;
}

void PageWrites::ForgetRanks(std::span<const int32_t> ranks) {
  for (auto& [owner, write] : writes_) {
    const bool from_memory = write.page.from == nullptr;
    if (!from_memory || write.lost ||
        std::find(ranks.begin(), ranks.end(), write.page.page.rank) == ranks.end()) {
      continue;
    }
    const PageKey key = KeyOf(write.page.mark);
    levels_.Hide(key);
    write.lost = true;
    EndOffer(write.page.mark);  // it may be offered again
    levels_.Drop({&key, 1});
  }
}

void PageWrites::ReleaseAll() {
  for (const auto& [owner, write] : writes_) {
    if (write.held) book_.Release(owner);
  }
}

int64_t PageWrites::bytes() const {
  const int64_t mark = BytesOfMark(limits_.page_tokens);
  int64_t bytes = std::ssize(writes_) * 2 * mark;  // the mover has marks of its own
  for (const std::deque<Page>& waiting : waiting_) bytes += std::ssize(waiting) * mark;
  return bytes;
}

}  // namespace annulus
