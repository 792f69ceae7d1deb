#ifndef ANNULUS_ENGINE_RUNNER_RANK_SET_H_
#define ANNULUS_ENGINE_RUNNER_RANK_SET_H_

#include <memory>
#include <vector>

#include "engine/memory/buffer_pool.h"
#include "engine/ring/in_process_channel.h"
#include "engine/runner/rank_thread.h"

namespace annulus {

struct RankSetOptions {
  int ranks = 1;
  int threads = 1;                                      // all ranks together; each has at least one
  size_t kv_memory_bytes = 0;                           // all ranks together
  int rows_per_rank = 2048;                             // most rows of a plan on one rank
  std::chrono::milliseconds exchange_timeout{600'000};  // longest silence of all ranks in a step
  AttentionObserver* observer = nullptr;                // of a lone rank; null: nobody looks on
};

// All ranks of this process: their threads, memory and channels. Used by the coordinator's thread
// alone, except where it says that any thread may ask.
//
// On a device with several memory nodes each rank keeps its memory and threads on one, and
// neighbours in the ring share it as far as possible. With fewer ranks than nodes a rank uses the
// whole device.
class RankSet {
 public:
  // RESOURCE_EXHAUSTED with the numbers when the memory cannot be had. `model` and `backend` must
  // outlive the set.
  static absl::StatusOr<std::unique_ptr<RankSet>> Create(const RankModel& model, Backend& backend,
                                                         const RankSetOptions& options);
  ~RankSet();

  int size() const { return static_cast<int>(ranks_.size()); }

  // Runs a step on every rank and waits for all. The first failure of any rank aborts the others
  // and is returned; the ranks then know no sequence, and every sequence's pages are lost. When
  // all ranks have been silent for exchange_timeout and one does not come back even after an abort,
  // this and every later call is UNAVAILABLE.
  absl::StatusOr<std::vector<RankResult>> Run(std::shared_ptr<const StepPlan> plan);

  KvPool& pool(int rank) { return *ranks_[rank]->kv; }
  const KvPool& pool(int rank) const { return *ranks_[rank]->kv; }
  // Any thread may ask.
  BufferPoolStats Stats(int rank) const { return ranks_[rank]->memory->Stats(); }
  // Workspace that the rank's kernels have taken. Any thread may ask.
  size_t workspace_bytes(int rank) const { return ranks_[rank]->stream->workspace_bytes(); }
  // The memory node that the rank is kept on; -1: anywhere.
  int node(int rank) const { return ranks_[rank]->node; }
  // Block lists of attention policies, shared by all ranks. Thread-safe.
  PatternCache& patterns() { return patterns_; }
  bool healthy() const { return lost_.ok(); }
  // When any rank last finished a layer or a ring step. Any thread may ask.
  SteadyTime last_progress() const { return heartbeat_.last(); }

 private:
  // Most bytes of block lists that are kept for others.
  static constexpr size_t kPatternBytes = size_t{64} << 20;

  struct Rank {
    int node = -1;
    std::unique_ptr<BufferPool> memory;
    std::unique_ptr<BufferPool> host_memory;  // null where the host reads `memory`
    std::unique_ptr<KvPool> kv;
    std::unique_ptr<StepArena> arena;
    std::unique_ptr<StepArena> host_arena;  // null with host_memory
    std::unique_ptr<Stream> stream;
    std::unique_ptr<RankThread> thread;
  };

  RankSet(int ranks, const RankSetOptions& options) : options_(options), ring_(ranks) {}
  absl::Status AddRank(const RankModel& model, Backend& device);
  static absl::Status TakeHostArena(Backend& backend, size_t bytes, Rank& rank);
  std::optional<RankResult> WaitFor(int rank);

  const RankSetOptions options_;
  Heartbeat heartbeat_;
  PatternCache patterns_{kPatternBytes};
  InProcessRing ring_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  absl::Status lost_;  // not OK once a rank did not come back
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_SET_H_
