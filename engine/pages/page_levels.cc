#include "engine/pages/page_levels.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus {

PageLevels::PageLevels(Options options) : page_bytes_(static_cast<double>(options.page_bytes)) {
  ANNULUS_CHECK(!options.levels.empty() && options.levels.size() <= kMostLevels)
      << options.levels.size();
  for (const Level& level : options.levels) {
    PageMover::Options mover;
    mover.lanes = level.lanes;
    mover.compares = options.compares;
    mover.write_bytes_per_second = level.write_bytes_per_second;
    mover.wake = options.wake;
    mover.clock = options.clock;
    levels_.push_back({level, std::make_unique<PageMover>(*level.store, std::move(mover)), {}});
  }
}

bool PageLevels::on() const {
  return std::any_of(levels_.begin(), levels_.end(),
                     [](const State& state) { return state.level.store->on(); });
}

std::optional<int> PageLevels::Find(const PageKey& key) const {
  if (IsHidden(key)) return std::nullopt;
  for (int level = 0; level < size(); ++level) {
    if (store(level).Has(key)) return level;
  }
  return std::nullopt;
}

bool PageLevels::beside_ranks() const {
  return std::any_of(levels_.begin(), levels_.end(),
                     [](const State& state) { return state.level.store->beside_ranks(); });
}

uint64_t PageLevels::RanksWith(const PageKey& key) const {
  uint64_t ranks = 0;
  if (IsHidden(key)) return ranks;
  for (const State& state : levels_) ranks |= state.level.store->RanksWith(key);
  return ranks;
}

void PageLevels::ForgetRanks(std::span<const int32_t> ranks) {
  for (const State& state : levels_) state.level.store->ForgetRanks(ranks);
}

void PageLevels::Reveal(const PageKey& key) {
  const auto found = hidden_.find(key);
  ANNULUS_CHECK(found != hidden_.end()) << "a page that nobody hid";
  if (--found->second == 0) hidden_.erase(found);
}

bool PageLevels::HaveAll(const PageKey& key, int32_t rank, const DocumentSet& documents) const {
  if (IsHidden(key)) return false;
  return std::all_of(levels_.begin(), levels_.end(), [&](const State& state) {
    const PageStore& store = *state.level.store;
    return !store.on() || store.Has(store.KeyBeside(key, rank), documents);
  });
}

void PageLevels::Touch(const PageKey& key, int64_t use) {
  for (const State& state : levels_) state.level.store->Touch(key, use);
}

void PageLevels::AddRead(int level, double bytes, double seconds, SteadyTime now) {
  levels_[level].rate.Add(bytes, seconds, now);
}

PageLevels::Expected PageLevels::SecondsFor(const Counts& pages, SteadyTime now) const {
  Expected expected;
  for (int level = 0; level < size(); ++level) {
    if (pages[level] == 0) continue;
    const std::optional<double> seconds =
        levels_[level].rate.SecondsFor(page_bytes_ * static_cast<double>(pages[level]), now);
    expected.seconds += seconds.value_or(0);
    expected.measured = expected.measured && seconds.has_value();
  }
  return expected;
}

void PageLevels::Distrust(std::span<const PageKey> keys, const Counts& gave) {
  for (int level = 0; level < size(); ++level) {
    mover(level).Remove(store(level).Distrust(keys, gave[level] > 0));
  }
}

void PageLevels::TurnOffHung() {
  for (const State& state : levels_) {
    const double most = state.level.most_job_seconds;
    if (state.mover->OldestJob() <= most) continue;
    const absl::string_view what =
        state.mover->IsCopying() ? "a device has not copied a page" : "the disk has not answered";
    state.level.store->TurnOff(
        absl::UnavailableError(absl::StrCat(what, " for more than ", most, " s")));
  }
}

SteadyTime PageLevels::NextDue(SteadyTime now) const {
  SteadyTime due = SteadyTime::max();
  for (const State& state : levels_) {
    const double oldest = state.level.store->on() ? state.mover->OldestJob() : 0;
    if (oldest == 0) continue;
    const double left = std::min(state.level.most_job_seconds - oldest, 1e6);
    due = std::min(due, now + std::chrono::duration_cast<SteadyTime::duration>(
                                  std::chrono::duration<double>(left)));
  }
  return due;
}

void PageLevels::TurnOffAll(const absl::Status& reason) {
  for (const State& state : levels_) state.level.store->TurnOff(reason);
}

void PageLevels::CopyFailed(const absl::Status& reason) {
  for (const State& state : levels_) state.level.store->CopyFailed(reason);
}

void PageLevels::CancelReads(uint64_t batch) {
  for (const State& state : levels_) state.mover->CancelReads(batch);
}

std::vector<PageMover::Copy> PageLevels::CopiesOf(uint64_t batch) const {
  std::vector<PageMover::Copy> copies;
  for (const State& state : levels_) {
    const std::vector<PageMover::Copy> of_level = state.mover->CopiesOf(batch);
    copies.insert(copies.end(), of_level.begin(), of_level.end());
  }
  return copies;
}

bool PageLevels::IsCopyingFor(uint64_t batch) const {
  return std::any_of(levels_.begin(), levels_.end(),
                     [&](const State& state) { return state.mover->IsCopyingFor(batch); });
}

bool PageLevels::IsCopying(uint64_t ticket) const {
  return std::any_of(levels_.begin(), levels_.end(),
                     [&](const State& state) { return state.mover->IsCopying(ticket); });
}

void PageLevels::Stop() {
  for (const State& state : levels_) state.level.store->Stop();
  // From the last on: a level's pages may be read to be written to the next one.
  for (auto state = levels_.rbegin(); state != levels_.rend(); ++state) state->mover.reset();
}

int64_t PageLevels::bytes() const {
  int64_t bytes = 0;
  for (const State& state : levels_) {
    bytes +=
        state.level.store->stats().pages * PageStore::kBytesPerPage + state.mover->buffer_bytes();
  }
  return bytes;
}

}  // namespace annulus
