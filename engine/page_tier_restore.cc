// The part of PageTier that reads pages back.

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/page_tier.h"
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

SteadyTime ClockNow() { return std::chrono::steady_clock::now(); }

SteadyTime After(SteadyTime time, double seconds) {
  return time + std::chrono::duration_cast<SteadyTime::duration>(
                    std::chrono::duration<double>(std::min(seconds, 1e6)));
}

}  // namespace

bool PageTier::HasPage(const ContentHash& chain, bool windows) const {
  for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
    if ((limits_.group_windows[g] > 0) != windows) continue;
    if (!store_.Has({chain, static_cast<int>(g)})) return false;
  }
  return true;
}

// The longest of the beginnings for whose end all windows' pages are there.
int32_t PageTier::LengthWithWindows(const std::vector<PageMark>& marks) const {
  const int32_t page = limits_.page_tokens;
  const auto has_all = [&](int32_t length) {
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      if (limits_.group_windows[g] == 0) continue;
      const int32_t oldest = std::max(0, length - limits_.group_windows[g] + 1) / page;
      for (int32_t index = length / page - 1; index >= oldest; --index) {
        if (!store_.Has({marks[index].chain, static_cast<int>(g)})) return false;
      }
    }
    return true;
  };
  for (auto pages = static_cast<int32_t>(marks.size()); pages > 0; --pages) {
    if (HasPage(marks[pages - 1].chain, true) && has_all(pages * page)) return pages * page;
  }
  return 0;
}

PageTier::Beginning PageTier::Find(const RequestSpec& spec, const AttentionAssignment* policy,
                                   int64_t rope) const {
  // A request that reads ahead computes no token: the last page counts for it too.
  const std::span<const int32_t> known =
      std::span(spec.prompt).first(spec.prompt.size() - (spec.prefill_only ? 0 : 1));
  const auto page = static_cast<size_t>(limits_.page_tokens);
  const auto find = [&](const AttentionAssignment* under) {
    Beginning beginning;
    if (under != nullptr) beginning.policy = *under;
    beginning.rope_length = rope;
    PageMark mark = MarkFor(spec.tenant, under, rope);
    for (size_t first = 0; first + page <= known.size(); first += page) {
      Advance(known.subspan(first, page), mark);
      if (!HasPage(mark.chain, false)) break;
      beginning.marks.push_back(mark);
    }
    beginning.tokens = has_windows() ? LengthWithWindows(beginning.marks)
                                     : static_cast<int32_t>(beginning.marks.size() * page);
    beginning.marks.resize(beginning.tokens / page);
    return beginning;
  };
  if (!store_.on()) return {};
  Beginning dense = find(nullptr);
  if (policy == nullptr || ClassOf(policy) == AttentionClass::kContent) return dense;
  Beginning own = find(policy);
  return own.tokens > dense.tokens ? own : dense;
}

int64_t PageTier::PagesBetween(int32_t from, int32_t to) const {
  const int32_t page = limits_.page_tokens;
  int64_t pages = 0;
  for (const int32_t window : limits_.group_windows) {
    const int32_t first = window > 0 ? std::max(0, to - window + 1) / page * page : from;
    pages += std::max(0, to - first) / page;
  }
  return pages;
}

bool PageTier::HasPlace(int64_t pages) const {
  if (std::ssize(restores_) < kMostRestores) return true;
  if (std::ssize(restores_) >= kMostWithShort) return false;
  return std::all_of(restores_.begin(), restores_.end(),
                     [&](const auto& entry) { return 2 * pages < entry.second.all; });
}

// The mover reads short batches first.
int64_t PageTier::PagesAhead(int64_t pages) const {
  int64_t ahead = 0;
  for (const auto& [owner, restore] : restores_) {
    if (restore.all <= pages) ahead += restore.left;
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
                                  int32_t in_memory, double computed) {
  const SteadyTime now = ClockNow();
  const auto [found, is_new] = standings_.try_emplace(id);
  StandingState& standing = found->second;
  if (is_new) standing.since = standing.asked = now;
  standing.in_memory = in_memory;
  const int32_t more = beginning.tokens - in_memory;
  if (more <= checked_tokens()) {
    standing.settled = true;
    return Standing::kSettled;
  }
  standing.pages = PagesBetween(in_memory, beginning.tokens);
  standing.restore = RestoreLike(tenant, beginning, in_memory);
  const int64_t pages = standing.restore.has_value()
                            ? PagesAhead(restores_.at(*standing.restore).all)
                            : PagesAhead(standing.pages) + standing.pages;
  const std::optional<double> seconds =
      rate_.SecondsFor(page_bytes() * static_cast<double>(pages), now);
  if (seconds.has_value() && computed > 0 && *seconds > computed) {
    standing.restore.reset();
    standing.settled = true;
    standing.miss = CacheMiss{CacheMiss::Reason::kDiskSlower, in_memory};
    return Standing::kSettled;
  }
  const double least = computed > 0 ? computed : kUnknownSecondsPerToken * more;
  standing.most_seconds = std::max(kLeastWait, least);
  const bool ready = !standing.restore.has_value() && HasPlace(standing.pages);
  // Nobody knows how long the restores under way take: it does not wait for them as long as it may
  // for its own pages.
  standing.unmeasured = !ready && !seconds.has_value();
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
  if (!store_.on() && !coming) return Standing::kSettled;
  if (found == standings_.end()) return Standing::kUnknown;
  StandingState& standing = found->second;
  if (standing.settled) return Standing::kSettled;
  const SteadyTime now = ClockNow();
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
  if (standing.unmeasured && rate_.SecondsFor(1, now).has_value()) return Standing::kUnknown;
  if (standing.restore.has_value()) return Standing::kComing;
  if (standing.pages == 0) return Standing::kUnknown;
  return HasPlace(standing.pages) ? Standing::kReady : Standing::kWanting;
}

SteadyTime PageTier::NextDue() const {
  const SteadyTime now = ClockNow();
  SteadyTime due = SteadyTime::max();
  for (const auto& [owner, restore] : restores_) due = std::min(due, DueOf(restore));
  for (const auto& [id, standing] : standings_) {
    // What is due already waits to be asked.
    const SteadyTime at = DueOf(standing);
    if (!standing.settled && at > now) due = std::min(due, at);
  }
  const double oldest = store_.on() ? mover_->OldestJob() : 0;
  return oldest > 0 ? std::min(due, After(now, most_job_seconds_ - oldest)) : due;
}

void PageTier::Begin(const Request& request, Beginning beginning, const PrefixIndex::Hit* from,
                     std::vector<int32_t> ring, PageOwner owner) {
  const std::vector<int32_t>& prompt = request.spec().prompt;
  Restore& restore = restores_[owner];
  restore.request = request.id();
  restore.tenant = request.spec().tenant;
  restore.documents = PrefixReuse::TagsOf(request.spec());
  restore.asked = request.documents_found();
  restore.begun = ClockNow();
  restore.tokens.assign(prompt.begin(), prompt.begin() + beginning.tokens);
  restore.ring = std::move(ring);
  restore.from = from == nullptr ? 0 : from->tokens;
  restore.good_to = beginning.tokens;
  restore.beginning = std::move(beginning);
  restore.pages.resize(limits_.group_windows.size());
  standings_[request.id()].restore = owner;
  const int32_t page = limits_.page_tokens;
  const int32_t to = restore.good_to;
  restore.all = PagesBetween(restore.from, to);
  // One use for all: of one text, the later pages are to go first.
  restore.use = store_.NextUse();
  for (int32_t index = 0; index < restore.from / page; ++index) {
    PageKey key = KeyOf(restore.beginning.marks[index]);
    for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
      key.group = static_cast<int32_t>(g);
      store_.Touch(key, restore.use);
    }
  }
  for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
    int32_t first = restore.from;
    if (const int32_t window = limits_.group_windows[g]; window > 0) {
      first = std::max(0, to - window + 1) / page * page;
    } else if (from != nullptr) {
      restore.pages[g] = from->groups[g];
    }
    for (; first < to; first += page) StartRead(owner, restore, static_cast<int>(g), first);
  }
  if (restore.left == 0) StopReading(owner);
}

void PageTier::StartRead(PageOwner owner, Restore& restore, int group, int32_t first) {
  const int index = PlaceOnRing(first, limits_.page_tokens, static_cast<int>(restore.ring.size()),
                                limits_.shards);
  if (book_.free_count(restore.ring[index]) == 0) {
    restore.whole = false;
    restore.good_to = std::min(restore.good_to, first);
    return;
  }
  const PageId id = book_.Load(owner, restore.ring[index], group);
  restore.pages[group].push_back({first, id});
  const uint64_t ticket = next_owner_++;
  arriving_[ticket] = {owner, first};
  ++restore.left;
  PageMark mark = restore.beginning.marks[first / limits_.page_tokens];
  mark.group = group;
  mover_->Read({ticket, std::move(mark), PiecesOf(id), restore.use}, {owner, restore.all});
}

void PageTier::Abort(RequestId id, PageOwner owner) {
  mover_->CancelReads(owner);
  std::erase_if(arriving_, [owner](const auto& entry) { return entry.second.restore == owner; });
  restores_.erase(owner);
  if (book_.IsOpen(owner)) book_.Release(owner);
  const auto standing = standings_.find(id);
  if (standing == standings_.end()) return;
  standing->second.restore.reset();
  standing->second.settled = true;
}

void PageTier::TakeRead(const PageMover::Done& done) {
  const auto found = arriving_.find(done.ticket);
  ANNULUS_CHECK(found != arriving_.end()) << "a read that nobody asked for: " << done.ticket;
  const Arriving arriving = found->second;
  arriving_.erase(found);
  Restore& restore = restores_.at(arriving.restore);
  last_arrival_ = ClockNow();
  metrics_.read_seconds.Add(done.seconds);
  if (done.status.ok()) {
    metrics_.read_bytes.Add(page_bytes());
    rate_.Add(page_bytes(), done.busy_seconds, last_arrival_);
    if (done.coverage.has_value()) {
      restore.coverage = std::min(restore.coverage.value_or(1), *done.coverage);
    }
  } else {
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
  metrics_.restores.Increment();
  metrics_.hits.Add(to - restore.from);
}

// Cancels reads that have not ended. The pages up to the first missing one are used; with windows,
// all or none.
void PageTier::StopReading(PageOwner owner) {
  Restore& restore = restores_.at(owner);
  if (restore.left > 0) {
    mover_->CancelReads(owner);
    restore.left = 0;
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
  restore.phase = samples() && restore.good_to > restore.from ? Phase::kUnchecked : Phase::kKnown;
  restore.arrived = ClockNow();
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
  book_.Release(owner);
  for (auto& [id, standing] : standings_) {
    if (standing.restore != owner) continue;
    standing.restore.reset();
    standing.pages = 0;
    // Another that waited for it looks again: the store may have more.
    standing.settled = id == restore.request;
    if (standing.settled && to < restore.beginning.tokens) {
      standing.miss = CacheMiss{restore.missing, to};
    }
    if (standing.to == 0) standing.from = restore.from;
    standing.to = std::max(standing.to, to);
  }
}

// Ends restores that are overdue: their requests go on with the pages that have come.
void PageTier::EndOverdue() {
  const SteadyTime now = ClockNow();
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
    // The disk was reading all that time, and gave nothing.
    const SteadyTime moved = std::max(restores_.at(owner).begun, last_arrival_);
    rate_.Add(0, SecondsBetween(moved, now), now);
    StopReading(owner);
  }
}

int64_t PageTier::Restored(RequestId id, int64_t cached) const {
  const auto found = standings_.find(id);
  if (found == standings_.end()) return 0;
  return std::max<int64_t>(0, std::min<int64_t>(cached, found->second.to) - found->second.from);
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
