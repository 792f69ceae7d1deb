#ifndef ANNULUS_ENGINE_PAGES_PAGE_LEVELS_H_
#define ANNULUS_ENGINE_PAGES_PAGE_LEVELS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/api/load.h"
#include "engine/memory/page_owner.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/tiers/page_mover.h"
#include "engine/tiers/page_store.h"
#include "engine/tiers/read_rate.h"

namespace annulus {

// The stores below the ranks' memory, the fastest first. A page enters at level 0 and is then
// copied to the next levels; it is read from the first level that has it. Each level has a
// PageMover and a ReadRate. Not thread-safe.
class PageLevels {
 public:
  static constexpr int kMostLevels = 2;
  // [level] Numbers of pages or tokens.
  using Counts = std::array<int64_t, kMostLevels>;

  // One level. Everything it points to must outlive the PageLevels.
  struct Level {
    TierKind kind = TierKind::kDisk;
    PageStore* store = nullptr;         // not null
    TierMetrics* metrics = nullptr;     // not null
    std::vector<PageLane*> lanes;       // PageMover::Options::lanes
    double write_bytes_per_second = 0;  // limit of the write rate; 0: none
    double most_job_seconds = 1e9;      // a read or write that takes longer turns the level off
  };
  struct Options {
    std::vector<Level> levels;            // 1 to kMostLevels
    size_t page_bytes = 0;                // size of every page
    bool compares = false;                // PageMover::Options::compares
    std::function<void()> wake;           // PageMover::Options::wake
    const Clock* clock = &Clock::Real();  // PageMover::Options::clock
  };
  explicit PageLevels(Options options);

  int size() const { return static_cast<int>(levels_.size()); }
  const Level& operator[](int level) const { return levels_[level].level; }
  PageStore& store(int level) const { return *levels_[level].level.store; }
  TierMetrics& metrics(int level) const { return *levels_[level].level.metrics; }
  PageMover& mover(int level) { return *levels_[level].mover; }

  // A ticket or batch for the movers that no other read or write has, and an owner in the page book
  // for such: its id is the ticket.
  uint64_t NewTicket() { return next_ticket_++; }
  PageOwner NewOwner() { return {PageOwner::Kind::kTier, NewTicket()}; }

  // Size of every page.
  double page_bytes() const { return page_bytes_; }

  // Whether at least one level is on.
  bool on() const;
  // The first level that has the page; nothing if none has, or if it is hidden.
  std::optional<int> Find(const PageKey& key) const;
  // Whether a level keeps pages beside their ranks: see PageStore::beside_ranks.
  bool beside_ranks() const;
  // See PageStore::RanksWith. 0 if the page is hidden.
  uint64_t RanksWith(const PageKey& key) const;
  // See PageStore::ForgetRanks.
  void ForgetRanks(std::span<const int32_t> ranks);
  // Whether every level that is on has the page, beside `rank` if it keeps pages so, labelled with
  // all of these documents. Not if it is hidden.
  bool HaveAll(const PageKey& key, int32_t rank, const DocumentSet& documents) const;
  // Hides a page until Reveal has been called as often: a store may get wrong bytes for it
  // meanwhile. Throws if memory runs out.
  void Hide(const PageKey& key) { ++hidden_[key]; }
  void Reveal(const PageKey& key);
  bool IsHidden(const PageKey& key) const { return hidden_.contains(key); }
  // Marks the page as used at `use`, on all levels that have it.
  void Touch(const PageKey& key, int64_t use);
  // PageStore::NextUse of the last level, whose pages may be older than this process.
  int64_t NextUse() { return store(size() - 1).NextUse(); }

  // See ReadRate::Add.
  void AddRead(int level, double bytes, double seconds, SteadyTime now);
  struct Expected {
    double seconds = 0;    // sum over the levels whose rate is known
    bool measured = true;  // whether the rates of all levels with pages to read are known
  };
  // The expected time to read so many pages from each level, one level after the other.
  Expected SecondsFor(const Counts& pages, SteadyTime now) const;

  // Drops pages whose bytes turned out to be wrong from all levels: see PageStore::Distrust. Counts
  // a mismatch on the levels that gave some of them (gave[level] > 0). Throws if memory runs out;
  // some levels may then still have the pages.
  void Distrust(std::span<const PageKey> keys, const Counts& gave);
  // Drops pages from all levels; counts no mismatch. Throws like Distrust.
  void Drop(std::span<const PageKey> keys) { Distrust(keys, {}); }
  // Turns off the levels with a read or write under way for longer than most_job_seconds.
  void TurnOffHung();
  // When TurnOffHung should be called next, even if no read or write ends.
  SteadyTime NextDue(SteadyTime now) const;
  void TurnOffAll(const absl::Status& reason);
  // Calls PageStore::CopyFailed on all levels.
  void CopyFailed(const absl::Status& reason);
  // See PageMover; these cover all levels.
  void CancelReads(uint64_t batch);
  std::vector<PageMover::Copy> CopiesOf(uint64_t batch) const;
  bool IsCopyingFor(uint64_t batch) const;
  bool IsCopying(uint64_t ticket) const;

  // Waits for the reads and writes under way, which wait for no other process (PageStore::Stop),
  // and drops the others. No other call may follow.
  void Stop();

  // Heap bytes of bookkeeping and buffers.
  int64_t bytes() const;

 private:
  struct State {
    Level level;
    std::unique_ptr<PageMover> mover;
    ReadRate rate;
  };
  const double page_bytes_;
  uint64_t next_ticket_ = 1;
  std::vector<State> levels_;
  std::unordered_map<PageKey, int, PageKeyHash> hidden_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PAGE_LEVELS_H_
