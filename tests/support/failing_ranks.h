#ifndef ANNULUS_TESTS_SUPPORT_FAILING_RANKS_H_
#define ANNULUS_TESTS_SUPPORT_FAILING_RANKS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/runner/rank_port.h"

namespace annulus::testing {

// Ranks whose steps fail when a test says so, and which then may have lost the contents of pages.
class FailingRanks final : public RankPort {
 public:
  struct Failure {
    std::vector<int32_t> lost;  // ranks whose pages are overwritten
  };
  // `fails`: asked once for each step that has rows, on the coordinator's thread.
  FailingRanks(std::unique_ptr<RankPort> ranks, std::function<std::optional<Failure>()> fails)
      : ranks_(std::move(ranks)), fails_(std::move(fails)), taken_(ranks_->size()) {}

  absl::Status Start(std::shared_ptr<const StepPlan> plan) override {
    // The ranks behind this have not failed, so they must be told to forget.
    auto told = std::make_shared<StepPlan>(*plan);
    told->ended.insert(told->ended.end(), stale_.begin(), stale_.end());
    stale_.clear();
    for (const SequenceId id : plan->ended) known_.erase(id);
    for (const SequenceUpdate& update : plan->updates) known_.insert(update.sequence);
    started_.push_back(!plan->items.empty());
    return ranks_->Start(std::move(told));
  }

  absl::StatusOr<std::vector<RankResult>> Results() override {
    absl::StatusOr<std::vector<RankResult>> results = ranks_->Results();
    const bool has_rows = started_.front();
    started_.erase(started_.begin());
    const std::optional<Failure> failure = has_rows && results.ok() ? fails_() : std::nullopt;
    if (!failure.has_value()) return results;
    for (; !started_.empty(); started_.pop_back()) {
      if (absl::Status status = ranks_->Results().status(); !status.ok()) return status;
    }
    stale_ = std::exchange(known_, {});
    lost_ = failure->lost;
    for (const int32_t rank : lost_) Overwrite(rank);
    return absl::InternalError("a step fails as the test wants it");
  }

  double pause() const override { return ranks_->pause(); }
  std::vector<int32_t> TakeLost() override { return std::exchange(lost_, {}); }
  RanksState state() const override { return ranks_->state(); }
  SteadyTime last_progress() const override { return ranks_->last_progress(); }
  const std::vector<RankFacts>& facts() const override { return ranks_->facts(); }
  RankStatistics Statistics(int rank) const override { return ranks_->Statistics(rank); }
  std::string transport() const override { return ranks_->transport(); }
  int64_t visiting_pages() const override { return ranks_->visiting_pages(); }
  int64_t PagesSummarised(const SummaryKinds& kinds) const override {
    return ranks_->PagesSummarised(kinds);
  }
  PatternCache& patterns() override { return ranks_->patterns(); }
  PageBook::Hooks page_hooks() override {
    const PageBook::Hooks inner = ranks_->page_hooks();
    return {.on_take =
                [this, inner](const PageBook::Event& page) {
                  if (inner.on_take) inner.on_take(page);
                  taken_[page.id.rank].insert(page.id.page);
                },
            .on_free =
                [this, inner](const PageBook::Event& page) {
                  taken_[page.id.rank].erase(page.id.page);
                  if (inner.on_free) inner.on_free(page);
                }};
  }
  const KvPool* local_pages(int rank) const override { return ranks_->local_pages(rank); }

 private:
  // Free pages hold nothing, and may be poisoned.
  void Overwrite(int32_t rank) {
    const KvPool& pool = *ranks_->local_pages(rank);
    const KvGeometry& geometry = pool.geometry();
    for (const int32_t page : taken_[rank]) {
      for (int layer = 0; layer < geometry.layers_per_page; ++layer) {
        std::memset(pool.LayerPage(page, layer), 0x3f, geometry.layer_page_bytes);
      }
    }
  }

  const std::unique_ptr<RankPort> ranks_;
  const std::function<std::optional<Failure>()> fails_;
  std::vector<std::set<int32_t>> taken_;  // [rank] pages that the book has given out
  std::vector<bool> started_;             // steps without results: whether they have rows
  std::set<SequenceId> known_, stale_;
  std::vector<int32_t> lost_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_FAILING_RANKS_H_
