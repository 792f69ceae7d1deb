#ifndef ANNULUS_ENGINE_RUNNER_RANK_PORT_H_
#define ANNULUS_ENGINE_RUNNER_RANK_PORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/memory/buffer_pool.h"
#include "engine/memory/kv_pool.h"
#include "engine/memory/page_book.h"
#include "engine/sparse/page_summaries.h"
#include "engine/sparse/pattern_cache.h"
#include "engine/state/step_plan.h"

namespace annulus {

// What a rank is; never changes.
struct RankFacts {
  int32_t pages = 0;       // of keys and values, all groups together
  int64_t page_bytes = 0;  // of each
  std::string device;      // for people
  int node = -1;           // the memory node that it is kept on; -1: anywhere
};

// What a rank holds and has done until now.
struct RankStatistics {
  BufferPoolStats memory;
  size_t workspace_bytes = 0;  // that its kernels have taken
  GraphCounts graphs;          // what became of launches that steps held back
};

enum class RanksState : uint8_t {
  kUp,
  kFailed,  // no later step can run; all ranks have stopped
  kLost,    // likewise, and a rank did not come back: it may still use its pages
};

// All that coordinator and engine know of ranks. Ranks may be threads of this process (RankSet),
// simulated (tests/support/simulated_ranks.h) or elsewhere; page ids and their states are the
// coordinator's, the pages' bytes the ranks'. Used by the coordinator's thread alone, except where
// any thread may ask.
class RankPort {
 public:
  virtual ~RankPort() = default;

  // ---- steps

  // Starts a step on every rank. If OK, Results must be called before the next. INVALID_ARGUMENT
  // for a plan that no rank could run: it is as if a rank had failed in it. Once the state is not
  // kUp, the status that says why.
  virtual absl::Status Start(std::shared_ptr<const StepPlan> plan) = 0;

  // Waits for the step: a result of each rank, by rank. The first failure of any rank ends the step
  // on all and is returned; the ranks then know no sequence, and every sequence's pages are lost.
  virtual absl::StatusOr<std::vector<RankResult>> Results() = 0;

  absl::StatusOr<std::vector<RankResult>> Run(std::shared_ptr<const StepPlan> plan) {
    if (absl::Status started = Start(std::move(plan)); !started.ok()) return started;
    return Results();
  }

  virtual RanksState state() const = 0;
  // When any rank last finished a layer or a ring step. Any thread may ask.
  virtual SteadyTime last_progress() const = 0;

  // ---- facts; any thread may ask

  int size() const { return static_cast<int>(facts().size()); }
  virtual const std::vector<RankFacts>& facts() const = 0;  // [rank]
  virtual RankStatistics Statistics(int rank) const = 0;
  // How messages travel, for people.
  virtual std::string transport() const = 0;
  // Pages of one layer that a plan may let a rank take in of its peers in one ring step: see
  // ModePolicy.
  virtual int64_t visiting_pages() const = 0;
  // See engine/sparse/page_summaries.h.
  virtual int64_t PagesSummarised(const SummaryKinds& kinds) const = 0;
  // Block lists of attention policies, shared by all ranks of this process. Thread-safe.
  virtual PatternCache& patterns() = 0;

  // ---- pages

  // What a book of the pages is to tell the ranks.
  virtual PageBook::Hooks page_hooks() = 0;
  // Where the bytes of the rank's pages are; null: not in this process.
  virtual const KvPool* local_pages(int rank) const = 0;

  // How many pages each rank has, for a book of them.
  std::vector<int32_t> page_counts() const {
    std::vector<int32_t> counts;
    for (const RankFacts& rank : facts()) counts.push_back(rank.pages);
    return counts;
  }
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_PORT_H_
