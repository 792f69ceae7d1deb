#include "engine/pages/restore_verdicts.h"

#include <algorithm>
#include <numeric>

namespace annulus {
namespace {

// If nobody asked about a request for longer than this, it waited for something else.
constexpr double kMostGapSeconds = 2;
// Used until computing was measured, and much more than it takes, so that a restore is tried.
constexpr double kUnknownSecondsPerToken = 1e-3;

}  // namespace

RestoreVerdicts::Verdict RestoreVerdicts::Overtake(Standing& standing) {
  standing.restore.reset();
  standing.settled = true;
  standing.miss = CacheMiss{CacheMiss::Reason::kDiskSlower, standing.in_memory};
  return Verdict::kSettled;
}

RestoreVerdicts::Verdict RestoreVerdicts::Judge(RequestId id, const TenantId& tenant,
                                                const SavedBeginning& beginning, InMemory in_memory,
                                                double computed) {
  const SteadyTime now = clock_.Now();
  const auto [found, is_new] = standings_.try_emplace(id);
  Standing& standing = found->second;
  if (is_new) standing.since = standing.asked = now;
  standing.in_memory = in_memory.usable;
  const int32_t more = beginning.tokens - in_memory.usable;
  if (more <= checked_tokens_) {
    standing.settled = true;
    return Verdict::kSettled;
  }
  const PageLevels::Counts own = lookup_.CountPages(beginning, in_memory.before);
  standing.pages = std::accumulate(own.begin(), own.end(), int64_t{0});
  standing.restore = restores_.Like(tenant, beginning, in_memory.usable);
  standing.awaited = restores_.PagesAhead(
      standing.restore.has_value() ? restores_.at(*standing.restore).all : standing.pages);
  if (!standing.restore.has_value()) {
    for (int level = 0; level < levels_.size(); ++level) standing.awaited[level] += own[level];
  }
  const PageLevels::Expected reading = levels_.SecondsFor(standing.awaited, now);
  if (computed > 0 && reading.seconds > computed) return Overtake(standing);
  const double least = computed > 0 ? computed : kUnknownSecondsPerToken * more;
  standing.most_seconds = std::max(kLeastWait, least);
  const bool ready = !standing.restore.has_value() && restores_.MayBegin(standing.pages);
  // Nobody knows how long the restores under way take: it does not wait for them as long as it may
  // for its own pages.
  standing.unmeasured = !ready && !reading.measured;
  if (standing.unmeasured) standing.most_seconds = kLeastWait;
  if (standing.restore.has_value()) return Verdict::kComing;
  return ready ? Verdict::kReady : Verdict::kWanting;
}

std::optional<double> RestoreVerdicts::SecondsToRead(const SavedBeginning& beginning,
                                                     int32_t from) const {
  if (verify_ == KvVerify::kAll || !levels_.on()) return std::nullopt;
  const PageLevels::Counts own = lookup_.CountPages(beginning, from);
  PageLevels::Counts awaited =
      restores_.PagesAhead(std::accumulate(own.begin(), own.end(), int64_t{0}));
  for (int level = 0; level < levels_.size(); ++level) awaited[level] += own[level];
  const PageLevels::Expected reading = levels_.SecondsFor(awaited, clock_.Now());
  if (!reading.measured) return std::nullopt;
  return reading.seconds;
}

SteadyTime RestoreVerdicts::DueOf(const Standing& standing) {
  return After(standing.since, standing.most_seconds);
}

std::optional<SteadyTime> RestoreVerdicts::DueOf(RequestId id) const {
  const auto found = standings_.find(id);
  if (found == standings_.end()) return std::nullopt;
  return DueOf(found->second);
}

SteadyTime RestoreVerdicts::NextDue(SteadyTime now) const {
  SteadyTime due = SteadyTime::max();
  for (const auto& [id, standing] : standings_) {
    // A request that is already due waits to be asked.
    const SteadyTime at = DueOf(standing);
    if (!standing.settled && at > now) due = std::min(due, at);
  }
  return due;
}

bool RestoreVerdicts::ReadsForItself(RequestId id, const Standing& standing) const {
  return standing.restore.has_value() && restores_.at(*standing.restore).request == id;
}

RestoreVerdicts::Verdict RestoreVerdicts::Of(RequestId id) {
  const auto found = standings_.find(id);
  if (verify_ == KvVerify::kAll) return Verdict::kSettled;
  // Restored pages stay valid if the disk fails later.
  const bool coming = found != standings_.end() && ReadsForItself(id, found->second);
  if (!levels_.on() && !coming) return Verdict::kSettled;
  if (found == standings_.end()) return Verdict::kUnknown;
  Standing& standing = found->second;
  if (standing.settled) return Verdict::kSettled;
  const SteadyTime now = clock_.Now();
  // Nobody asked for a while: it waited for something else, such as a free slot.
  const double gap = SecondsBetween(standing.asked, now) - kMostGapSeconds;
  if (gap > 0) standing.since = After(standing.since, gap);
  standing.asked = now;
  if (ReadsForItself(id, standing)) return Verdict::kComing;  // PageRestorer ends that
  if (now >= DueOf(standing)) return Overtake(standing);
  if (standing.unmeasured && levels_.SecondsFor(standing.awaited, now).measured) {
    return Verdict::kUnknown;
  }
  if (standing.restore.has_value()) return Verdict::kComing;
  if (standing.pages == 0) return Verdict::kUnknown;
  return restores_.MayBegin(standing.pages) ? Verdict::kReady : Verdict::kWanting;
}

void RestoreVerdicts::Settle(RequestId id) {
  const auto standing = standings_.find(id);
  if (standing == standings_.end()) return;
  standing->second.restore.reset();
  standing->second.settled = true;
}

void RestoreVerdicts::End(PageOwner owner, const Restore& restore, int32_t to,
                          const PageLevels::Counts& came) {
  for (auto& [id, standing] : standings_) {
    if (standing.restore != owner) continue;
    standing.restore.reset();
    standing.pages = 0;
    if (restore.checked.has_value()) standing.checked = restore.checked;
    // Another that waited for it is judged again: the store may have more.
    standing.settled = id == restore.request;
    if (standing.settled && to < restore.beginning.tokens) {
      standing.miss = CacheMiss{restore.missing, to > restore.from ? to : standing.in_memory};
    }
    if (standing.to == 0) standing.from = restore.from;
    standing.to = std::max(standing.to, to);
    for (int level = 0; level < levels_.size(); ++level) standing.came[level] += came[level];
  }
}

TokensByTier RestoreVerdicts::Restored(RequestId id, int64_t cached) const {
  const auto found = standings_.find(id);
  if (found == standings_.end()) return {};
  const Standing& standing = found->second;
  const int64_t all = std::max<int64_t>(0, std::min<int64_t>(cached, standing.to) - standing.from);
  const int64_t host = std::min(all, lookup_.ByTier(standing.came).host);
  return {host, all - host};
}

std::optional<int64_t> RestoreVerdicts::Checked(RequestId id) const {
  const auto found = standings_.find(id);
  return found == standings_.end() ? std::nullopt : found->second.checked;
}

std::optional<CacheMiss> RestoreVerdicts::WhyNoMore(RequestId id) const {
  const auto found = standings_.find(id);
  return found == standings_.end() ? std::nullopt : found->second.miss;
}

int64_t RestoreVerdicts::bytes() const {
  return std::ssize(standings_) * static_cast<int64_t>(sizeof(Standing) + 64);
}

}  // namespace annulus
