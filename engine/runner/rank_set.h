#ifndef ANNULUS_ENGINE_RUNNER_RANK_SET_H_
#define ANNULUS_ENGINE_RUNNER_RANK_SET_H_

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/options.h"
#include "engine/base/clock.h"
#include "engine/codec/step_codec.h"
#include "engine/memory/buffer_pool.h"
#include "engine/ring/open_ring.h"
#include "engine/runner/rank_port.h"
#include "engine/runner/rank_thread.h"

namespace annulus {

// A ring that only several processes together can begin anew. Its other ranks are in other sets.
struct WiderRing {
  std::function<absl::StatusOr<std::unique_ptr<RingGroup>>()> open;
  RingNeeds needs;
};

struct RankSetOptions {
  // Settled: see Settle. The ranks of this set share threads and kv_memory_bytes; each gets at
  // least one thread.
  EngineOptions engine;
  RankSpan span;                          // the ranks of this set
  int rows_per_rank = 2048;               // most rows of a plan on one rank
  int suspended_rows = 0;                 // see PlanLimits::suspended_rows_per_rank
  AttentionObserver* observer = nullptr;  // only for a single rank; null: none
  // The ring between all ranks. Absent: that of OpenRing, for which all are in this set.
  std::optional<WiderRing> ring;
  // For tests: encode and decode every plan and result, as between processes.
  bool through_bytes = false;
  // Whether freed pages are poisoned, for which somebody must call page_hooks.
  bool poison_pages = kPoisonFreedPages;
  // Called whenever a step has ended on all ranks of this set, on the thread of one, before Results
  // returns its results; null: none.
  std::function<void()> on_step_end = nullptr;
  // The clock of exchange_timeout; not null, and must outlive the set.
  const Clock* clock = &Clock::Real();
};

// How many of the backend's devices `ranks` ranks of this process use. The r-th of them is on
// device r modulo this number.
int DevicesOf(const Backend& backend, int ranks);

// Bytes on a rank's device for what peers copy to it and for assembling what it sends, as far as
// the ring may need them (RingNeeds); `devices`: those of this set. Computed before the ring is
// open.
size_t CountSlotBytes(const RankModel& model, const RankSetOptions& options, int devices);

// What plans and results of a ring are checked against whose ranks have so many pages: see the
// codec.
CodecLimits CodecLimitsOf(const RankModel& model, std::vector<int32_t> pages);

// The layout of a rank's pages.
KvGeometry GeometryOf(const RankModel& model);

// The ranks of this process: their threads, memory and channels. The set may be a part of a ring
// (RankSetOptions::span); everything by rank is then indexed from its first rank on, and after a
// failed step somebody must call Reset for all parts, since none can mend the ring alone.
//
// On a device with several NUMA nodes, each rank keeps its memory and threads on one node, and
// neighbours in the ring share a node as far as possible. If there are fewer ranks than nodes, a
// rank uses the whole device. If the backend has several devices, ranks are assigned to them in
// turn and RankModel has weights on each.
class RankSet final : public RankPort {
 public:
  // RESOURCE_EXHAUSTED, with numbers, if the memory cannot be allocated; FAILED_PRECONDITION if the
  // transport is not available, or if layers differ in AttentionShape and pages are to be stored or
  // on a device with memory of its own; UNIMPLEMENTED if layers without a window differ in it.
  // `model` and `backend` must outlive the set.
  static absl::StatusOr<std::unique_ptr<RankSet>> Create(const RankModel& model, Backend& backend,
                                                         const RankSetOptions& options);
  ~RankSet() override;

  // If no rank makes progress for exchange_timeout, the step is aborted. If a rank does not return
  // even then, the state becomes kLost, and Results and every later call return UNAVAILABLE. If the
  // ring or a device cannot be used again, the state becomes kFailed.
  absl::Status Start(std::shared_ptr<const StepPlan> plan) override;
  absl::StatusOr<std::vector<RankResult>> Results() override;
  double pause() const override { return pause_; }

  // Makes the steps under way fail with `why`, which is not OK, when they next wait for a peer or
  // for an expert, or at once if they do. Thread-safe, except that it must not be called during
  // Reset.
  void Abort(const absl::Status& why);
  // Ends the steps under way without results, within the limits of Results. UNAVAILABLE, naming the
  // rank, if one does not end; the destructor would wait for it for ever.
  absl::Status EndSteps();
  // With RankSetOptions::ring: EndSteps, and begins anew with an empty ring; the ranks have then
  // forgotten all sequences and kept their pages. Waits for the other processes as the ring does.
  // On an error the state is kFailed, and Reset may be called again, or kLost.
  absl::Status Reset();

  // Ranks of other parts have made progress at `when`: those here go on waiting for them. One
  // thread at a time may say so.
  void NoteProgressElsewhere(SteadyTime when) { heartbeat_.BeatElsewhere(when); }

  // What the ranks do now, for those who cannot read this process's clock. Thread-safe.
  struct Work {
    uint64_t advances =
        0;            // how often they have made progress: layers begun, pages attended to, ..
    int running = 0;  // how many have a step that has not ended
    int waiting = 0;  // of these, how many wait for other ranks
  };
  Work work() const;

  // A step that fails while the devices work leaves all other pages as they were.
  std::vector<int32_t> TakeLost() override { return {}; }
  RanksState state() const override;
  SteadyTime last_progress() const override { return heartbeat_.last_own(); }

  const std::vector<RankFacts>& facts() const override { return facts_; }
  RankStatistics Statistics(int rank) const override;
  std::string transport() const override { return ring_->description(); }
  int64_t visiting_pages() const override { return visiting_pages_; }
  int64_t PagesSummarised(const SummaryKinds& kinds) const override;
  PatternCache& patterns() override { return patterns_; }
  PageBook::Hooks page_hooks() override;
  const KvPool* local_pages(int rank) const override { return ranks_[rank]->kv.get(); }

  const KvPool& pool(int rank) const { return *ranks_[rank]->kv; }

 private:
  struct Rank {
    int node = -1;
    std::unique_ptr<BufferPool> memory;
    std::unique_ptr<BufferPool> host_memory;  // null if the host reads `memory`
    std::unique_ptr<KvPool> kv;
    DeviceBuffer workspace;  // for the stream; empty if ops use the host's heap
    DeviceBuffer slots;      // includes the channel's send area; empty if it does not copy
    std::unique_ptr<StepArena> arena;
    std::unique_ptr<StepArena> host_arena;  // null if host_memory is null
    std::unique_ptr<StepArena> suspended;   // null if no chunk is suspended between layers
    std::unique_ptr<Stream> stream;
    std::unique_ptr<RankThread> thread;
  };

  RankSet(const RankModel& model, Backend& backend, const RankSetOptions& options)
      : model_(model), backend_(backend), options_(options), heartbeat_(*options.clock) {}
  absl::Status AddRank(const RankModel& model);
  void ResumeExperts();
  static absl::Status TakeHostArena(Backend& backend, size_t bytes, Rank& rank);
  // A step that was started and whose results were not taken.
  struct Step {
    std::shared_ptr<const StepPlan> plan;
    std::vector<RankResult> results;  // with capacity for all ranks
    double pause = 0;                 // see RankPort::pause
  };
  void Begin(std::shared_ptr<const StepPlan> plan);
  void OnEnd(bool ok);
  absl::StatusOr<std::shared_ptr<const StepPlan>> ThroughBytes(const StepPlan& plan) const;
  absl::Status TakeResults(Step& step);
  absl::Status DropSecondStep();
  absl::Status BeginAnew();
  absl::Status Silent(int rank);
  std::optional<RankResult> WaitFor(int rank);
  RankFacts FactsOf(int rank) const;
  // The backend of the rank's device.
  Backend& device(int rank) const;

  const RankModel& model_;
  Backend& backend_;
  const RankSetOptions options_;
  int64_t visiting_pages_ = std::numeric_limits<int64_t>::max();
  Heartbeat heartbeat_;
  PatternCache patterns_{kPatternBytes};
  std::unique_ptr<RingGroup> ring_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<RankFacts> facts_;
  // Used by the coordinator's thread alone. Started steps whose results it has not taken, the older
  // one first.
  std::array<Step, 2> steps_;
  int started_ = 0;   // how many of steps_ there are
  double pause_ = 0;  // what pause() returns

  mutable std::mutex running_mutex_;      // guards the members up to next_
  int running_ = 0;                       // ranks on which the running step has not ended
  bool failed_ = false;                   // a rank failed, and Results has not handled that yet
  SteadyTime ended_;                      // when the last step ended on all ranks
  std::shared_ptr<const StepPlan> next_;  // begins once the running step has ended well; or null

  // Used by the coordinator's thread alone. Not OK once a rank is lost, or the ring or a device
  // cannot be used again.
  absl::Status lost_;
  bool all_back_ = true;  // false once a rank is lost
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_SET_H_
