#include "engine/pages/page_restorer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/try_to.h"
#include "engine/pages/page_pieces.h"
#include "engine/pages/page_writes.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

// A restore that has got no page for so many seconds is given up: the disk hangs.
constexpr double kMostStillSeconds = 5;

}  // namespace

SteadyTime PageRestorer::DueOf(const Restore& restore) const {
  if (restore.phase == Restore::Phase::kUnchecked) return After(restore.arrived, kLeastWait);
  if (restore.phase == Restore::Phase::kChecking) return SteadyTime::max();
  const SteadyTime still = After(std::max(restore.begun, last_arrival_), kMostStillSeconds);
  return std::min(still, use_.verdicts.DueOf(restore.request).value_or(still));
}

SteadyTime PageRestorer::NextDue() const {
  SteadyTime due = SteadyTime::max();
  for (const auto& [owner, restore] : use_.restores.all()) due = std::min(due, DueOf(restore));
  return due;
}

void PageRestorer::Begin(const Request& request, SavedBeginning beginning,
                         const PrefixIndex::Hit* from, std::vector<int32_t> ring, PageOwner owner) {
  const std::vector<int32_t>& prompt = request.spec().prompt;
  Restore& restore = use_.restores.all()[owner];
  restore.request = request.id();
  restore.seed = request.spec().sampling.seed.value_or(0);
  restore.tenant = request.spec().tenant;
  restore.documents = PrefixReuse::TagsOf(request.spec());
  restore.asked = request.documents_found();
  restore.begun = use_.clock.Now();
  restore.tokens.assign(prompt.begin(), prompt.begin() + beginning.tokens);
  restore.ring = std::move(ring);
  restore.from = from == nullptr ? 0 : from->tokens;
  restore.good_to = beginning.tokens;
  restore.beginning = std::move(beginning);
  restore.pages.resize(static_cast<size_t>(use_.marks.groups()));
  use_.verdicts.Begin(request.id(), owner);
  const int32_t page = use_.marks.page_tokens();
  const int32_t to = restore.good_to;
  restore.came_from.assign((to - restore.from) / page, 0);
  use_.marks.ForEachRead(restore.from, to, [&](int, int32_t) { ++restore.all; });
  // One use for all: of one text, the later pages are to go first.
  restore.use = use_.levels.NextUse();
  for (int32_t index = 0; index < restore.from / page; ++index) {
    for (int group = 0; group < use_.marks.groups(); ++group) {
      use_.levels.Touch({restore.beginning.marks[index].chain, group}, restore.use);
    }
  }
  for (int group = 0; from != nullptr && group < use_.marks.groups(); ++group) {
    if (!use_.marks.is_window(group)) restore.pages[group] = from->groups[group];
  }
  use_.marks.ForEachRead(
      restore.from, to, [&](int group, int32_t first) { StartRead(owner, restore, group, first); });
  if (restore.left == 0) StopReading(owner);
}

void PageRestorer::StartRead(PageOwner owner, Restore& restore, int group, int32_t first) {
  const int index = PlaceOnRing(first, use_.marks.page_tokens(),
                                static_cast<int>(restore.ring.size()), use_.limits.shards);
  const PageKey key{restore.beginning.marks[first / use_.marks.page_tokens()].chain, group};
  const std::optional<int> level = use_.levels.Find(key);
  if (!level.has_value() || use_.book.free_count(restore.ring[index]) == 0) {
    restore.whole = false;
    restore.good_to = std::min(restore.good_to, first);
    return;
  }
  restore.pages[group].push_back({first, use_.book.Load(owner, restore.ring[index], group)});
  ++restore.left;
  ReadFrom(*level, owner, restore, group, first);
}

// Into the restore's page, which is there.
void PageRestorer::ReadFrom(int level, PageOwner owner, Restore& restore, int group,
                            int32_t first) {
  const uint64_t ticket = use_.levels.NewTicket();
  arriving_[ticket] = {owner, group, first};
  ++restore.left_on[level];
  PageMark mark = restore.beginning.marks[first / use_.marks.page_tokens()];
  mark.group = group;
  const PageId id = restore.PageAt(group, first);
  use_.levels.mover(level).Read({.ticket = ticket,
                                 .mark = std::move(mark),
                                 .pieces = PiecesOf(use_.ranks, id),
                                 .use = restore.use,
                                 .id = id},
                                {owner.id, restore.all});
}

void PageRestorer::Abort(RequestId id, PageOwner owner) {
  use_.levels.CancelReads(owner.id);
  std::erase_if(arriving_, [owner](const auto& entry) { return entry.second.restore == owner; });
  use_.restores.all().erase(owner);
  if (use_.book.IsOpen(owner)) use_.lingering.ReleaseRestore(owner);
  use_.verdicts.Settle(id);
}

void PageRestorer::TakeDone(const PageMover::Done& done, int level) {
  const auto found = arriving_.find(done.ticket);
  ANNULUS_CHECK(found != arriving_.end()) << "a read that nobody asked for: " << done.ticket;
  const Arriving arriving = found->second;
  arriving_.erase(found);
  Restore& restore = use_.restores.at(arriving.restore);
  --restore.left_on[level];
  last_arrival_ = use_.clock.Now();
  const TierMetrics& metrics = use_.levels.metrics(level);
  metrics.read_seconds.Add(done.seconds);
  const int32_t page = arriving.first_position / use_.marks.page_tokens();
  const PageKey key{restore.beginning.marks[page].chain, arriving.group};
  if (done.status.ok() && !use_.levels.IsHidden(key)) {
    metrics.read_bytes.Add(use_.levels.page_bytes());
    use_.levels.AddRead(level, use_.levels.page_bytes(), done.busy_seconds, last_arrival_);
    if (done.coverage.has_value()) {
      restore.coverage = std::min(restore.coverage.value_or(1), *done.coverage);
    }
    uint8_t& from = restore.came_from[page - restore.from / use_.marks.page_tokens()];
    from = std::max(from, static_cast<uint8_t>(level));
  } else {
    // The page was evicted, or failed its check: a slower level may still have it.
    const std::optional<int> next = use_.levels.Find(key);
    if (next.has_value() && *next > level) {
      return ReadFrom(*next, arriving.restore, restore, arriving.group, arriving.first_position);
    }
    restore.whole = false;
    if (absl::IsDataLoss(done.status)) restore.missing = CacheMiss::Reason::kDiskRefused;
    restore.good_to = std::min(restore.good_to, arriving.first_position);
  }
  if (--restore.left == 0) StopReading(arriving.restore);
}

void PageRestorer::KeepRestored(const Restore& restore, int32_t to) {
  const auto page_at = [&](int group, int32_t first) { return restore.PageAt(group, first); };
  const std::optional<AttentionAssignment>& policy = restore.beginning.policy;
  use_.prefixes.KeepLoaded(
      {restore.tenant, policy.has_value() ? &*policy : nullptr, restore.beginning.rope_length,
       restore.ring, restore.documents, restore.asked},
      std::span(restore.tokens).first(to), restore.coverage, page_at);
  const PageLevels::Counts came = restore.CameBack(to, use_.marks.page_tokens());
  for (int level = 0; level < use_.levels.size(); ++level) {
    if (came[level] == 0) continue;
    use_.levels.metrics(level).restores.Increment();
    use_.levels.metrics(level).hits.Add(came[level]);
  }
}

// Cancels reads that have not ended. The pages up to the first missing one are used; with windows,
// all or none.
void PageRestorer::StopReading(PageOwner owner) {
  Restore& restore = use_.restores.at(owner);
  if (restore.left > 0) {
    use_.levels.CancelReads(owner.id);
    restore.left = 0;
    restore.left_on = {};
    restore.whole = false;
    restore.missing = CacheMiss::Reason::kDiskSlower;
    std::erase_if(arriving_, [&](const auto& entry) {
      if (entry.second.restore != owner) return false;
      restore.good_to = std::min(restore.good_to, entry.second.first_position);
      return true;
    });
  }
  const bool has_windows = use_.marks.has_windows();
  if (has_windows && !restore.whole) restore.good_to = restore.from;
  restore.good_to = std::max(restore.good_to, restore.from);
  const int32_t page_tokens = use_.marks.page_tokens();
  const int32_t pages = (restore.good_to - restore.from) / page_tokens;
  restore.phase =
      use_.checker.checks() && pages > 0 ? Restore::Phase::kUnchecked : Restore::Phase::kKnown;
  if (restore.phase == Restore::Phase::kUnchecked) {
    // Of windows nothing is there in front of another page.
    const int32_t page =
        has_windows ? pages - 1 : PageChecker::SampledPage(restore.seed, restore.request, pages);
    restore.sampled = restore.from + page * page_tokens;
  }
  restore.arrived = use_.clock.Now();
  if (restore.phase == Restore::Phase::kKnown) EndRestore(owner);
}

// Makes the pages known that may be used.
void PageRestorer::EndRestore(PageOwner owner) {
  Restore restore = std::move(use_.restores.all().extract(owner).mapped());
  const bool known = restore.phase == Restore::Phase::kKnown;
  int32_t to = known ? restore.good_to : restore.from;
  if (to > restore.from && !TryTo([&] { KeepRestored(restore, to); })) to = restore.from;
  use_.lingering.ReleaseRestore(owner);
  use_.verdicts.End(owner, restore, to, restore.CameBack(to, use_.marks.page_tokens()));
}

void PageRestorer::StopReadingFrom(int level) {
  std::vector<PageOwner> reading;
  for (const auto& [owner, restore] : use_.restores.all()) {
    const bool reads = restore.phase == Restore::Phase::kReading && restore.left_on[level] > 0;
    if (reads) reading.push_back(owner);
  }
  for (const PageOwner owner : reading) StopReading(owner);
}

void PageRestorer::EndOverdue() {
  const SteadyTime now = use_.clock.Now();
  std::vector<PageOwner> overdue;
  for (const auto& [owner, restore] : use_.restores.all()) {
    if (now >= DueOf(restore)) overdue.push_back(owner);
  }
  for (const PageOwner owner : overdue) {
    Restore& restore = use_.restores.at(owner);
    if (restore.phase == Restore::Phase::kUnchecked) {
      restore.missing = CacheMiss::Reason::kDiskSlower;
      EndRestore(owner);
      continue;
    }
    // Its pages were being read all this time, without a result.
    const SteadyTime moved = std::max(restore.begun, last_arrival_);
    for (int level = 0; level < use_.levels.size(); ++level) {
      if (restore.left_on[level] == 0) continue;
      use_.levels.AddRead(level, 0, SecondsBetween(moved, now), now);
    }
    StopReading(owner);
  }
}

void PageRestorer::Forget(RequestId id) {
  for (const auto& [owner, restore] : use_.restores.all()) {
    if (restore.request != id) continue;
    if (restore.phase == Restore::Phase::kReading) StopReading(owner);
    break;
  }
}

void PageRestorer::ForgetRanks(std::span<const int32_t> ranks) {
  const auto reads_into = [&](const Restore& restore) {
    return std::find_first_of(restore.ring.begin(), restore.ring.end(), ranks.begin(),
                              ranks.end()) != restore.ring.end();
  };
  // First: nothing of them is used, even if memory runs out below.
  for (auto& [owner, restore] : use_.restores.all()) {
    if (!reads_into(restore)) continue;
    restore.good_to = restore.from;
    restore.missing = CacheMiss::Reason::kEvicted;
  }
  std::vector<PageOwner> lost;
  for (const auto& [owner, restore] : use_.restores.all()) {
    if (reads_into(restore) && restore.phase != Restore::Phase::kChecking) lost.push_back(owner);
  }
  for (const PageOwner owner : lost) {
    if (use_.restores.at(owner).phase == Restore::Phase::kReading) {
      StopReading(owner);
    } else {
      EndRestore(owner);
    }
  }
}

std::optional<PageRestorer::Check> PageRestorer::NextCheck() const {
  const Restores::Map& restores = use_.restores.all();
  const auto next = std::find_if(restores.begin(), restores.end(), [](const auto& entry) {
    return entry.second.phase == Restore::Phase::kUnchecked;
  });
  if (next == restores.end()) return std::nullopt;
  const Restore& restore = next->second;
  Check check;
  check.restore = next->first;
  check.request = restore.request;
  check.tenant = restore.tenant;
  check.policy = restore.beginning.policy;
  check.rope_length = restore.beginning.rope_length;
  check.tokens.assign(restore.tokens.begin(),
                      restore.tokens.begin() + restore.sampled + use_.marks.page_tokens());
  check.ring = restore.ring;
  check.before.tokens = restore.sampled;
  check.before.groups = restore.pages;
  for (std::vector<PrefixPage>& pages : check.before.groups) {
    std::erase_if(
        pages, [&](const PrefixPage& page) { return page.first_position >= check.before.tokens; });
  }
  return check;
}

void PageRestorer::BeginCheck(PageOwner restore) {
  use_.restores.at(restore).phase = Restore::Phase::kChecking;
}

void PageRestorer::EndCheck(PageOwner owner, const Sequence* computed) {
  Restore& restore = use_.restores.at(owner);
  ANNULUS_CHECK(restore.phase == Restore::Phase::kChecking) << "a check that nobody began";
  if (computed != nullptr) use_.checker.Compare(*computed, restore);
  EndRestore(owner);
}

void PageRestorer::ReleaseAll() {
  for (const auto& [owner, restore] : use_.restores.all()) use_.book.Release(owner);
}

int64_t PageRestorer::bytes() const {
  const int64_t mark = PageWrites::BytesOfMark(use_.marks.page_tokens());
  int64_t bytes = std::ssize(arriving_) * static_cast<int64_t>(sizeof(Arriving) + 64);
  for (const auto& [owner, restore] : use_.restores.all()) {
    bytes += std::ssize(restore.beginning.marks) * 2 * mark +
             std::ssize(restore.tokens) * static_cast<int64_t>(sizeof(int32_t));
  }
  return bytes;
}

}  // namespace annulus
