#include "engine/pages/page_tier.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "engine/base/try_to.h"

namespace annulus {

PageTier::PageTier(std::vector<PageLevels::Level> levels, Options options, const PlanLimits& limits,
                   const RankPort& ranks, const Clock& clock, PageBook& book, PrefixReuse& prefixes)
    : limits_(limits),
      ranks_(ranks),
      clock_(clock),
      levels_(LevelOptions(std::move(levels), options.verify, std::move(options.wake))),
      marks_(HashOf(options.identity), limits_),
      // Under KvVerify::kAll, nothing that the levels have is used.
      lookup_({.other_identities = std::move(options.other_identities),
               .others_are_used = options.verify != KvVerify::kAll},
              marks_, levels_, limits_, book),
      lingering_(levels_, book),
      writes_(limits_, ranks_, levels_, book, lingering_),
      saver_(options.verify == KvVerify::kAll,
             {limits_, marks_, clock_, book, prefixes, levels_, writes_}),
      restores_(marks_),
      checker_(options.verify == KvVerify::kSample ? options.comparer : nullptr, marks_, ranks_,
               levels_),
      verdicts_(options.verify, checker_.checked_tokens(), lookup_, levels_, restores_, clock_),
      restorer_({limits_, marks_, ranks_, clock_, book, prefixes, levels_, lingering_, checker_,
                 restores_, verdicts_}) {}

PageLevels::Options PageTier::LevelOptions(std::vector<PageLevels::Level> levels, KvVerify verify,
                                           std::function<void()> wake) {
  PageLevels::Options options;
  options.levels = std::move(levels);
  options.page_bytes = options.levels[0].lanes[0]->buffer().size();
  options.compares = verify == KvVerify::kAll;
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
  writes_.ReleaseAll();
  restorer_.ReleaseAll();
  lingering_.ReleaseAll();
}

void PageTier::Forget(RequestId id) {
  restorer_.Forget(id);
  verdicts_.Forget(id);
  saver_.Forget(id);
}

void PageTier::ForgetRanks(std::span<const int32_t> ranks) {
  const auto forget = [&] {
    writes_.ForgetRanks(ranks);
    levels_.ForgetRanks(ranks);
  };
  // A write under way may take what is on a rank that has taken a lost one's place.
  if (!TryTo(forget)) levels_.TurnOffAll(no_memory_);
  // What it leaves undone only ends restores of which nothing is used; they end by themselves too.
  TryTo([&] { restorer_.ForgetRanks(ranks); });
}

bool PageTier::Turn() {
  woken_ = false;
  saver_.BeginTurn();
  const int64_t restores = restores_.size();
  lingering_.ReleaseCopied();
  // Each part runs separately, so that one without memory does not stop the others. The next turn
  // does the rest, and a restore that lacks one of its pages becomes overdue.
  for (int level = 0; level < levels_.size(); ++level) TakeDone(level);
  TryTo([&] { CarryOn(); });
  writes_.Show();
  return lingering_.TakeReleased() || restores_.size() < restores;
}

void PageTier::TakeDone(int level) {
  std::vector<PageMover::Done> all;
  TryTo([&] { all = levels_.mover(level).TakeDone(); });
  for (const PageMover::Done& done : all) {
    TryTo([&] {
      if (done.read) {
        restorer_.TakeDone(done, level);
      } else {
        writes_.TakeDone(done);
      }
    });
  }
}

void PageTier::CarryOn() {
  levels_.TurnOffHung();
  restorer_.EndOverdue();
  for (int level = 0; level < levels_.size(); ++level) {
    if (levels_.store(level).on()) continue;
    // Its pages move on to the next level or stay where they are, and nothing waits for them.
    writes_.LetGoOf(level);
    restorer_.StopReadingFrom(level);
  }
  writes_.Start();
  if (!levels_.on()) saver_.ForgetAll();
}

SteadyTime PageTier::NextDue() const {
  const SteadyTime now = clock_.Now();
  return std::min(
      {levels_.NextDue(now), restorer_.NextDue(), verdicts_.NextDue(now), saver_.held_until()});
}

int64_t PageTier::bytes() const {
  return levels_.bytes() + checker_.bytes() + writes_.bytes() + saver_.bytes() + restorer_.bytes() +
         verdicts_.bytes();
}

}  // namespace annulus
