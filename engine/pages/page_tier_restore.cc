// The part of PageTier that reads pages back.

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/pages/page_tier.h"
#include "engine/scheduler/step_cost.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"

namespace annulus {
namespace {

// A restore that has got no page for so long is given up: the disk hangs.
constexpr double kMostStillSeconds = 5;
// A request may wait this long for pages even if computing them would take less.
constexpr double kLeastWait = 1;
// If nobody looked at a request for longer than this, it waits for something else.
constexpr double kMostGapSeconds = 2;
// Used until computing was measured, and much more than it takes, so that a restore is tried.
constexpr double kUnknownSecondsPerToken = 1e-3;

constexpr int64_t kMostRestores = 2;
// Restores of fewer pages than half of any under way begin beside those, up to so many.
constexpr int64_t kMostWithShort = 6;

SteadyTime After(SteadyTime time, double seconds) {
  return time + std::chrono::duration_cast<SteadyTime::duration>(
                    std::chrono::duration<double>(std::min(seconds, 1e6)));
}

}  // namespace

bool PageTier::HasPlace(int64_t pages) const {
  if (std::ssize(restores_) < kMostRestores) return true;
  if (std::ssize(restores_) >= kMostWithShort) return false;
  return std::all_of(restores_.begin(), restores_.end(),
                     [&](const auto& entry) { return 2 * pages < entry.second.all; });
}

// Movers read short batches first.
PageTier::Counts PageTier::PagesAhead(int64_t pages) const {
  Counts ahead{};
  for (const auto& [owner, restore] : restores_) {
    if (restore.all > pages) continue;
    for (int level = 0; level < levels_.size(); ++level) ahead[level] += restore.left_on[level];
  }
  return ahead;
}

// A restore under way that brings at least half of what the store has beyond memory.
std::optional<PageOwner> PageTier::RestoreLike(const TenantId& tenant, const Beginning& beginning,
                                               int32_t in_memory) const {
  const auto& marks = beginning.marks;
  for (const auto& [owner, restore] : restores_) {
    const auto& others = restore.beginning.marks;
    // Chains name the tenant, the policy and every token before.
    const auto common =
        std::mismatch(marks.begin(), marks.end(), others.begin(), others.end(),
                      [](const PageMark& a, const PageMark& b) { return a.chain == b.chain; });
    const auto tokens = static_cast<int32_t>(common.first - marks.begin()) * limits_.page_tokens;
    if (restore.tenant != tenant || tokens == 0) continue;
    if (has_windows() && tokens < restore.beginning.tokens) continue;  // it comes back whole
    if (2 * int64_t{tokens - in_memory} >= beginning.tokens - in_memory) return owner;
  }
  return std::nullopt;
}

PageTier::Standing PageTier::Look(RequestId id, const TenantId& tenant, const Beginning& beginning,
                                  InMemory in_memory, double computed) {
  const SteadyTime now = clock_.Now();
  const auto [found, is_new] = standings_.try_emplace(id);
  StandingState& standing = found->second;
  if (is_new) standing.since = standing.asked = now;
  standing.in_memory = in_memory.usable;
  const int32_t more = beginning.tokens - in_memory.usable;
  if (more <= checked_tokens()) {
    standing.settled = true;
    return Standing::kSettled;
  }
  const Counts own = CountPages(beginning, in_memory.before);
  standing.pages = std::accumulate(own.begin(), own.end(), int64_t{0});
  standing.restore = RestoreLike(tenant, beginning, in_memory.usable);
  standing.awaited = PagesAhead(standing.restore.has_value() ? restores_.at(*standing.restore).all
                                                             : standing.pages);
  if (!standing.restore.has_value()) {
    for (int level = 0; level < levels_.size(); ++level) standing.awaited[level] += own[level];
  }
  const PageLevels::Expected reading = levels_.SecondsFor(standing.awaited, now);
  if (computed > 0 && reading.seconds > computed) {
    standing.restore.reset();
    standing.settled = true;
    standing.miss = CacheMiss{CacheMiss::Reason::kDiskSlower, in_memory.usable};
    return Standing::kSettled;
  }
  const double least = computed > 0 ? computed : kUnknownSecondsPerToken * more;
  standing.most_seconds = std::max(kLeastWait, least);
  const bool ready = !standing.restore.has_value() && HasPlace(standing.pages);
  // Nobody knows how long the restores under way take: it does not wait for them as long as it may
  // for its own pages.
  standing.unmeasured = !ready && !reading.measured;
  if (standing.unmeasured) standing.most_seconds = kLeastWait;
  if (standing.restore.has_value()) return Standing::kComing;
  return ready ? Standing::kReady : Standing::kWanting;
}

SteadyTime PageTier::DueOf(const StandingState& standing) const {
  return After(standing.since, standing.most_seconds);
}

SteadyTime PageTier::DueOf(const Restore& restore) const {
  if (restore.phase == Phase::kUnchecked) return After(restore.arrived, kLeastWait);
  if (restore.phase == Phase::kChecking) return SteadyTime::max();
  const SteadyTime still = After(std::max(restore.begun, last_arrival_), kMostStillSeconds);
  const auto standing = standings_.find(restore.request);
  return standing == standings_.end() ? still : std::min(still, DueOf(standing->second));
}

bool PageTier::ReadsForItself(RequestId id, const StandingState& standing) const {
  return standing.restore.has_value() && restores_.at(*standing.restore).request == id;
}

PageTier::Standing PageTier::StandingOf(RequestId id) {
  const auto found = standings_.find(id);
  if (verify_ == KvVerify::kAll) return Standing::kSettled;
  // What has come is still good if the disk fails then.
  const bool coming = found != standings_.end() && ReadsForItself(id, found->second);
  if (!levels_.on() && !coming) return Standing::kSettled;
  if (found == standings_.end()) return Standing::kUnknown;
  StandingState& standing = found->second;
  if (standing.settled) return Standing::kSettled;
  const SteadyTime now = clock_.Now();
  // Nobody asked for a while: it waited for something else, say for a place among those that run.
  const double gap = SecondsBetween(standing.asked, now) - kMostGapSeconds;
  if (gap > 0) standing.since = After(standing.since, gap);
  standing.asked = now;
  if (ReadsForItself(id, standing)) return Standing::kComing;  // Turn ends that
  if (now >= DueOf(standing)) {
    standing.restore.reset();
    standing.settled = true;
    standing.miss = CacheMiss{CacheMiss::Reason::kDiskSlower, standing.in_memory};
    return Standing::kSettled;
  }
  if (standing.unmeasured && levels_.SecondsFor(standing.awaited, now).measured) {
    return Standing::kUnknown;
  }
  if (standing.restore.has_value()) return Standing::kComing;
  if (standing.pages == 0) return Standing::kUnknown;
  return HasPlace(standing.pages) ? Standing::kReady : Standing::kWanting;
}

SteadyTime PageTier::NextDue() const {
  const SteadyTime now = clock_.Now();
  SteadyTime due = levels_.NextDue(now);
  for (const auto& [owner, restore] : restores_) due = std::min(due, DueOf(restore));
  for (const auto& [id, standing] : standings_) {
    // What is due already waits to be asked.
    const SteadyTime at = DueOf(standing);
    if (!standing.settled && at > now) due = std::min(due, at);
  }
  return std::min(due, held_until_);
}

void PageTier::Begin(const Request& request, Beginning beginning, const PrefixIndex::Hit* from,
                     std::vector<int32_t> ring, PageOwner owner) {
  const std::vector<int32_t>& prompt = request.spec().prompt;
  Restore& restore = restores_[owner];
  restore.request = request.id();
  restore.seed = request.spec().sampling.seed.value_or(0);
  restore.tenant = request.spec().tenant;
  restore.documents = PrefixReuse::TagsOf(request.spec());
  restore.asked = request.documents_found();
  restore.begun = clock_.Now();
  restore.tokens.assign(prompt.begin(), prompt.begin() + beginning.tokens);
  restore.ring = std::move(ring);
  restore.from = from == nullptr ? 0 : from->tokens;
  restore.good_to = beginning.tokens;
  restore.beginning = std::move(beginning);
  restore.pages.resize(limits_.group_windows.size());
  standings_[request.id()].restore = owner;
  const int32_t page = limits_.page_tokens;
  const int32_t to = restore.good_to;
  restore.came_from.assign((to - restore.from) / page, 0);
  ForEachPage(restore.from, to, [&](int, int32_t) { ++restore.all; });
  // One use for all: of one text, the later pages are to go first.
  restore.use = levels_.NextUse();
  for (int32_t index = 0; index < restore.from / page; ++index) {
    PageKey key = KeyOf(restore.beginning.marks[index]);
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      key.group = static_cast<int32_t>(g);
      levels_.Touch(key, restore.use);
    }
  }
  for (size_t g = 0; from != nullptr && g < limits_.group_windows.size(); ++g) {
    if (limits_.group_windows[g] == 0) restore.pages[g] = from->groups[g];
  }
  ForEachPage(restore.from, to,
              [&](int group, int32_t first) { StartRead(owner, restore, group, first); });
  if (restore.left == 0) StopReading(owner);
}

void PageTier::StartRead(PageOwner owner, Restore& restore, int group, int32_t first) {
  const int index = PlaceOnRing(first, limits_.page_tokens, static_cast<int>(restore.ring.size()),
                                limits_.shards);
  const PageKey key{restore.beginning.marks[first / limits_.page_tokens].chain, group};
  const std::optional<int> level = levels_.Find(key);
  if (!level.has_value() || book_.free_count(restore.ring[index]) == 0) {
    restore.whole = false;
    restore.good_to = std::min(restore.good_to, first);
    return;
  }
  restore.pages[group].push_back({first, book_.Load(owner, restore.ring[index], group)});
  ++restore.left;
  ReadFrom(*level, owner, restore, group, first);
}

// Into the restore's page, which is there.
void PageTier::ReadFrom(int level, PageOwner owner, Restore& restore, int group, int32_t first) {
  const uint64_t ticket = next_ticket_++;
  arriving_[ticket] = {owner, group, first};
  ++restore.left_on[level];
  PageMark mark = restore.beginning.marks[first / limits_.page_tokens];
  mark.group = group;
  const PageId id = PageAt(restore, group, first);
  levels_.mover(level).Read({.ticket = ticket,
                             .mark = std::move(mark),
                             .pieces = PiecesOf(id),
                             .use = restore.use,
                             .id = id},
                            {owner.id, restore.all});
}

void PageTier::Abort(RequestId id, PageOwner owner) {
  levels_.CancelReads(owner.id);
  std::erase_if(arriving_, [owner](const auto& entry) { return entry.second.restore == owner; });
  restores_.erase(owner);
  if (book_.IsOpen(owner)) ReleaseRestore(owner);
  const auto standing = standings_.find(id);
  if (standing == standings_.end()) return;
  standing->second.restore.reset();
  standing->second.settled = true;
}

void PageTier::TakeRead(const PageMover::Done& done, int level) {
  const auto found = arriving_.find(done.ticket);
  ANNULUS_CHECK(found != arriving_.end()) << "a read that nobody asked for: " << done.ticket;
  const Arriving arriving = found->second;
  arriving_.erase(found);
  Restore& restore = restores_.at(arriving.restore);
  --restore.left_on[level];
  last_arrival_ = clock_.Now();
  const TierMetrics& metrics = levels_.metrics(level);
  metrics.read_seconds.Add(done.seconds);
  const int32_t page = arriving.first_position / limits_.page_tokens;
  if (done.status.ok()) {
    metrics.read_bytes.Add(page_bytes());
    levels_.AddRead(level, page_bytes(), done.busy_seconds, last_arrival_);
    if (done.coverage.has_value()) {
      restore.coverage = std::min(restore.coverage.value_or(1), *done.coverage);
    }
    uint8_t& from = restore.came_from[page - restore.from / limits_.page_tokens];
    from = std::max(from, static_cast<uint8_t>(level));
  } else {
    // It went meanwhile, or was not what it should be: a level behind may still have it.
    const std::optional<int> next =
        levels_.Find({restore.beginning.marks[page].chain, arriving.group});
    if (next.has_value() && *next > level) {
      return ReadFrom(*next, arriving.restore, restore, arriving.group, arriving.first_position);
    }
    restore.whole = false;
    if (absl::IsDataLoss(done.status)) restore.missing = CacheMiss::Reason::kDiskRefused;
    restore.good_to = std::min(restore.good_to, arriving.first_position);
  }
  if (--restore.left == 0) StopReading(arriving.restore);
}

PageId PageTier::PageAt(const Restore& restore, int group, int32_t first) {
  const std::vector<PrefixPage>& pages = restore.pages[group];
  const auto page =
      std::lower_bound(pages.begin(), pages.end(), first,
                       [](const PrefixPage& each, int32_t at) { return each.first_position < at; });
  ANNULUS_CHECK(page != pages.end() && page->first_position == first) << "no page at " << first;
  return page->id;
}

void PageTier::KeepRestored(const Restore& restore, int32_t to) {
  const auto page_at = [&](int group, int32_t first) { return PageAt(restore, group, first); };
  const std::optional<AttentionAssignment>& policy = restore.beginning.policy;
  prefixes_.KeepLoaded(
      {restore.tenant, policy.has_value() ? &*policy : nullptr, restore.beginning.rope_length,
       restore.ring, restore.documents, restore.asked},
      std::span(restore.tokens).first(to), restore.coverage, page_at);
  const Counts came = CameBack(restore, to);
  for (int level = 0; level < levels_.size(); ++level) {
    if (came[level] == 0) continue;
    levels_.metrics(level).restores.Increment();
    levels_.metrics(level).hits.Add(came[level]);
  }
}

PageTier::Counts PageTier::CameBack(const Restore& restore, int32_t to) const {
  Counts came{};
  for (int32_t page = 0; page < (to - restore.from) / limits_.page_tokens; ++page) {
    came[restore.came_from[page]] += limits_.page_tokens;
  }
  return came;
}

// Cancels reads that have not ended. The pages up to the first missing one are used; with windows,
// all or none.
void PageTier::StopReading(PageOwner owner) {
  Restore& restore = restores_.at(owner);
  if (restore.left > 0) {
    levels_.CancelReads(owner.id);
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
  if (has_windows() && !restore.whole) restore.good_to = restore.from;
  restore.good_to = std::max(restore.good_to, restore.from);
  const int32_t pages = (restore.good_to - restore.from) / limits_.page_tokens;
  restore.phase = samples() && pages > 0 ? Phase::kUnchecked : Phase::kKnown;
  if (restore.phase == Phase::kUnchecked) {
    // Of windows nothing is there in front of another page.
    const int32_t page =
        has_windows() ? pages - 1 : SampledPage(restore.seed, restore.request, pages);
    restore.sampled = restore.from + page * limits_.page_tokens;
  }
  restore.arrived = clock_.Now();
  if (restore.phase == Phase::kKnown) EndRestore(owner);
}

// Makes the pages known that may be used.
void PageTier::EndRestore(PageOwner owner) {
  Restore restore = std::move(restores_.extract(owner).mapped());
  const bool known = restore.phase == Phase::kKnown;
  int32_t to = known ? restore.good_to : restore.from;
  if (to > restore.from) {
    const auto keep = [&] {
      KeepRestored(restore, to);
      return absl::OkStatus();
    };
    const auto no_memory = [] { return absl::Status(absl::StatusCode::kResourceExhausted, ""); };
    if (!Guarded(keep, no_memory).ok()) to = restore.from;
  }
  ReleaseRestore(owner);
  const Counts came = CameBack(restore, to);
  for (auto& [id, standing] : standings_) {
    if (standing.restore != owner) continue;
    standing.restore.reset();
    standing.pages = 0;
    if (restore.checked.has_value()) standing.checked = restore.checked;
    // Another that waited for it looks again: the store may have more.
    standing.settled = id == restore.request;
    if (standing.settled && to < restore.beginning.tokens) {
      standing.miss = CacheMiss{restore.missing, to > restore.from ? to : standing.in_memory};
    }
    if (standing.to == 0) standing.from = restore.from;
    standing.to = std::max(standing.to, to);
    for (int level = 0; level < levels_.size(); ++level) standing.came[level] += came[level];
  }
}

// Ends restores that are overdue: their requests go on with the pages that have come.
void PageTier::EndOverdue() {
  const SteadyTime now = clock_.Now();
  std::vector<PageOwner> overdue;
  for (const auto& [owner, restore] : restores_) {
    if (now >= DueOf(restore)) overdue.push_back(owner);
  }
  for (const PageOwner owner : overdue) {
    if (Restore& restore = restores_.at(owner); restore.phase == Phase::kUnchecked) {
      restore.missing = CacheMiss::Reason::kDiskSlower;
      EndRestore(owner);
      continue;
    }
    // What it waits for was being read all that time, and gave nothing.
    const SteadyTime moved = std::max(restores_.at(owner).begun, last_arrival_);
    for (int level = 0; level < levels_.size(); ++level) {
      if (restores_.at(owner).left_on[level] == 0) continue;
      levels_.AddRead(level, 0, SecondsBetween(moved, now), now);
    }
    StopReading(owner);
  }
}

PageTier::ByTier PageTier::Restored(RequestId id, int64_t cached) const {
  const auto found = standings_.find(id);
  if (found == standings_.end()) return {};
  const StandingState& standing = found->second;
  const int64_t all = std::max<int64_t>(0, std::min<int64_t>(cached, standing.to) - standing.from);
  const int64_t host = std::min(all, TierTokens(standing.came).host);
  return {host, all - host};
}

std::optional<CacheMiss> PageTier::WhyNoMore(RequestId id) const {
  const auto found = standings_.find(id);
  return found == standings_.end() ? std::nullopt : found->second.miss;
}

void PageTier::Forget(RequestId id) {
  for (const auto& [owner, restore] : restores_) {
    if (restore.request != id) continue;
    if (restore.phase == Phase::kReading) StopReading(owner);
    break;
  }
  standings_.erase(id);
  offered_.erase(id);
}

}  // namespace annulus
