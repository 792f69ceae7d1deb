#ifndef ANNULUS_ENGINE_RUNNER_RANK_PORT_H_
#define ANNULUS_ENGINE_RUNNER_RANK_PORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/ring.h"
#include "engine/api/workers.h"
#include "engine/memory/buffer_pool.h"
#include "engine/memory/kv_pool.h"
#include "engine/memory/page_book.h"
#include "engine/sparse/page_summaries.h"
#include "engine/sparse/pattern_cache.h"
#include "engine/state/step_plan.h"

namespace annulus {

// Fixed properties of a rank.
struct RankFacts {
  int32_t pages = 0;       // for keys and values, all cache groups together
  int64_t page_bytes = 0;  // of each
  std::string device;      // for people
  int node = -1;           // NUMA node of its memory and threads; -1: not bound
};

// A snapshot of a rank's memory and work.
struct RankStatistics {
  BufferPoolStats memory;
  size_t workspace_bytes = 0;  // scratch memory that its kernels have allocated
  GraphCounts graphs;          // what became of launches recorded into graphs
};

// Limit of a process's cache of block lists.
inline constexpr size_t kPatternBytes = size_t{64} << 20;

// Measured links between processes.
struct LinkRates {
  double message_seconds = 0;  // see ExchangeRates, here and below
  double bytes_per_second = 0;

  void PutInto(ExchangeRates& rates) const {
    rates.message_seconds = message_seconds;
    rates.link_bytes_per_second = bytes_per_second;
  }
};

enum class RanksState : uint8_t {
  kUp,
  kMending,  // all ranks have stopped, and no step can run until the ring is whole again
  kFailed,   // as kMending, but nobody knows whether it ever will be: nothing should wait for it
  kLost,     // no later step can run, and a rank did not stop: it may still use its pages
};

// The coordinator's interface to the ranks. Ranks may be threads of this process (RankSet),
// simulated (tests/support/simulated_ranks.h), or elsewhere. The coordinator owns page ids and
// their states; the ranks own the pages' bytes. Only the coordinator's thread may call these
// methods, except those marked as thread-safe.
class RankPort {
 public:
  virtual ~RankPort() = default;

  // ---- steps

  // Starts a step on every rank. While it runs, one more may be started, which begins as soon as
  // the first has ended on every rank. INVALID_ARGUMENT if no rank could run the plan; the ranks
  // then forget all sequences unless a step runs. If state() is not kUp, returns the status that
  // explains why.
  virtual absl::Status Start(std::shared_ptr<const StepPlan> plan) = 0;

  // Waits for the older of the started steps and returns one result per rank, in rank order. If any
  // rank fails, the step ends on all ranks, and the first failure is returned. The ranks have then
  // forgotten all sequences, and a second step that was started is dropped: it has no results. What
  // the two steps were to write is undefined; all else is as it was, but on the ranks of TakeLost.
  virtual absl::StatusOr<std::vector<RankResult>> Results() = 0;

  absl::StatusOr<std::vector<RankResult>> Run(std::shared_ptr<const StepPlan> plan) {
    if (absl::Status started = Start(std::move(plan)); !started.ok()) return started;
    return Results();
  }

  // Of the step whose results were returned last: for how many seconds all ranks had been idle when
  // it began, since the end of the previous step.
  virtual double pause() const = 0;

  // The ranks whose pages lost their contents since the last call, ascending. Call it after every
  // failed step, and whenever no step is under way and state() is not kUp: a rank may lose its
  // pages between steps, and nothing is up before those who plan know which.
  virtual std::vector<int32_t> TakeLost() = 0;

  // False while the ring goes on without the rank: no plan may name it, and it has no results but
  // an empty one. Changes only when TakeLost names the rank next.
  virtual bool is_hosted(int /*rank*/) const { return true; }

  // False: no step should follow the one that runs, since the ring is to be formed anew.
  virtual bool takes_successors() const { return true; }

  // Changes from kUp while no step is under way only if ranks are elsewhere, and from kMending and
  // kFailed to kUp only between two calls of TakeLost.
  virtual RanksState state() const = 0;
  // While state() is not kUp: what the ranks wait for, for people; empty: nothing is known.
  virtual std::string awaited() const { return ""; }
  // When any rank last finished a layer or a ring step. Thread-safe.
  virtual SteadyTime last_progress() const = 0;

  // ---- facts; thread-safe

  int size() const { return static_cast<int>(facts().size()); }
  virtual const std::vector<RankFacts>& facts() const = 0;  // [rank]
  virtual RankStatistics Statistics(int rank) const = 0;
  // How messages travel between ranks, for people.
  virtual std::string transport() const = 0;
  // The workers that host ranks, without exposed_seconds; by default all ranks are here.
  virtual RingLoad workers() const { return {}; }
  // What links between processes were measured to do when the ring last formed; nothing if they
  // were not: all ranks are here, or only one is hosted.
  virtual std::optional<LinkRates> links() const { return std::nullopt; }
  // How many pages of one layer a plan may let a rank receive from its peers in one ring step: see
  // ModePolicy.
  virtual int64_t visiting_pages() const = 0;
  // How many pages one summary page covers: see engine/sparse/page_summaries.h.
  virtual int64_t PagesSummarised(const SummaryKinds& kinds) const = 0;
  // Cache of attention policies' block lists, shared by all ranks of this process; ranks elsewhere
  // have one there. Thread-safe.
  virtual PatternCache& patterns() = 0;

  // ---- pages

  // Callbacks by which a PageBook tells the ranks which pages are taken and freed.
  virtual PageBook::Hooks page_hooks() = 0;
  // The memory of the rank's pages; null if it is not in this process.
  virtual const KvPool* local_pages(int rank) const = 0;

  // Pages per rank, to construct a PageBook with.
  std::vector<int32_t> page_counts() const {
    std::vector<int32_t> counts;
    for (const RankFacts& rank : facts()) counts.push_back(rank.pages);
    return counts;
  }
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_PORT_H_
