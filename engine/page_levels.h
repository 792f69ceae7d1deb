#ifndef ANNULUS_ENGINE_PAGE_LEVELS_H_
#define ANNULUS_ENGINE_PAGE_LEVELS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/api/load.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/tiers/page_mover.h"
#include "engine/tiers/page_store.h"
#include "engine/tiers/read_rate.h"

namespace annulus {

// The stores that keep pages below the ranks' memory, the fastest first: a page enters at level 0
// and goes on to the others from there, and is read from the first level that has it. Each level
// has threads that carry its pages, and a rate at which they came lately. Used by one thread.
class PageLevels {
 public:
  static constexpr int kMostLevels = 2;
  // Pages or tokens, [level].
  using Counts = std::array<int64_t, kMostLevels>;

  // One level; what it points to outlives the levels.
  struct Level {
    TierKind kind = TierKind::kDisk;
    PageStore* store = nullptr;      // not null
    TierMetrics* metrics = nullptr;  // not null
    double write_bytes_per_second = 0;
    double most_job_seconds = 1e9;  // a call that takes longer turns the store off
  };
  struct Options {
    std::vector<Level> levels;   // 1 to kMostLevels
    size_t page_bytes = 0;       // of every page
    bool compares = false;       // PageMover::Options::compares
    std::function<void()> wake;  // after each job, from threads of the levels; short
  };
  explicit PageLevels(Options options);

  int size() const { return static_cast<int>(levels_.size()); }
  const Level& operator[](int level) const { return levels_[level].level; }
  PageStore& store(int level) const { return *levels_[level].level.store; }
  TierMetrics& metrics(int level) const { return *levels_[level].level.metrics; }
  PageMover& mover(int level) { return *levels_[level].mover; }

  // Whether any is.
  bool on() const;
  // The first level that has the page.
  std::optional<int> Find(const PageKey& key) const;
  // Whether all that are on have the page and know that it belongs to these documents.
  bool HaveAll(const PageKey& key, const DocumentSet& documents) const;
  void Touch(const PageKey& key, int64_t use);
  // PageStore::NextUse of the last level, whose pages may be older than this process.
  int64_t NextUse() { return store(size() - 1).NextUse(); }

  // So many bytes came from a level while it was reading for `seconds`.
  void AddRead(int level, double bytes, double seconds, SteadyTime now);
  struct Expected {
    double seconds = 0;    // of levels whose rate is known
    bool measured = true;  // all are
  };
  // What reading so many pages takes.
  Expected SecondsFor(const Counts& pages, SteadyTime now) const;

  // PageStore::Distrust on all levels; it counts on those that `gave` names.
  void Distrust(std::span<const PageKey> keys, const Counts& gave);
  // Drops the pages from all levels. If memory runs out, throws.
  void Drop(std::span<const PageKey> keys) { Distrust(keys, {}); }
  // Turns off the levels that have not answered for too long.
  void TurnOffHung();
  // When TurnOffHung may have something to do.
  SteadyTime NextDue(SteadyTime now) const;
  void TurnOffAll(const absl::Status& reason);
  void CancelReads(uint64_t batch);

  // Waits for the carrying under way; nothing is carried any more.
  void Stop();

  // Bytes of the heap for bookkeeping and buffers.
  int64_t bytes() const;

 private:
  struct State {
    Level level;
    std::unique_ptr<PageMover> mover;
    ReadRate rate;
  };
  const double page_bytes_;
  std::vector<State> levels_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGE_LEVELS_H_
