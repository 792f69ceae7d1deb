#ifndef ANNULUS_ENGINE_RUNNER_RANK_SET_H_
#define ANNULUS_ENGINE_RUNNER_RANK_SET_H_

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/codec/step_codec.h"
#include "engine/memory/buffer_pool.h"
#include "engine/ring/open_ring.h"
#include "engine/runner/rank_port.h"
#include "engine/runner/rank_thread.h"

namespace annulus {

struct RankSetOptions {
  int ranks = 1;
  int threads = 1;                                      // all ranks together; each has at least one
  size_t kv_memory_bytes = 0;                           // all ranks together
  int rows_per_rank = 2048;                             // most rows of a plan on one rank
  int sequences = 64;                                   // most of a plan
  std::chrono::milliseconds exchange_timeout{600'000};  // longest silence of all ranks in a step
  AttentionObserver* observer = nullptr;                // of a lone rank; null: nobody looks on
  RingTransport transport = RingTransport::kAuto;       // between several devices
  bool graphs = true;  // of steps that decode, where a device has them
  // Opens the ring between the ranks; null: OpenRing does, by `transport`.
  std::function<absl::StatusOr<std::unique_ptr<RingGroup>>()> open_ring;
  // Every plan and result goes through bytes and back, as between processes: for tests.
  bool through_bytes = false;
};

// Of a backend with several devices, those that so many ranks use: rank r is on device r modulo
// their number.
int DevicesOf(const Backend& backend, int ranks);

// Bytes of a rank's device for what peers copy to it and, where NCCL may be what is taken, for
// putting together what it sends, foreseen before the ring that `transport` names is open; 0 where
// all ranks are on one device, since that ring does not copy.
size_t CountSlotBytes(const RankModel& model, const RankSetOptions& options, int devices);

// What a rank's pages are made of.
KvGeometry GeometryOf(const RankModel& model);

// All ranks of this process: their threads, memory and channels.
//
// On a device with several memory nodes each rank keeps its memory and threads on one, and
// neighbours in the ring share it as far as possible. With fewer ranks than nodes a rank uses the
// whole device. Where the backend has several devices, ranks are dealt out to them in turn, and
// RankModel has weights on each.
class RankSet final : public RankPort {
 public:
  // RESOURCE_EXHAUSTED with the numbers when the memory cannot be had; FAILED_PRECONDITION where
  // the transport cannot be had. `model` and `backend` must outlive the set.
  static absl::StatusOr<std::unique_ptr<RankSet>> Create(const RankModel& model, Backend& backend,
                                                         const RankSetOptions& options);
  ~RankSet() override;

  // When all ranks have been silent for exchange_timeout and one does not come back even after an
  // abort, Results and every later call are UNAVAILABLE and the state is kLost. Where the ring or a
  // device cannot be used again it is kFailed.
  absl::Status Start(std::shared_ptr<const StepPlan> plan) override;
  absl::StatusOr<std::vector<RankResult>> Results() override;
  RanksState state() const override;
  SteadyTime last_progress() const override { return heartbeat_.last(); }

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
  // Most bytes of block lists that are kept for others.
  static constexpr size_t kPatternBytes = size_t{64} << 20;

  struct Rank {
    int node = -1;
    std::unique_ptr<BufferPool> memory;
    std::unique_ptr<BufferPool> host_memory;  // null where the host reads `memory`
    std::unique_ptr<KvPool> kv;
    PoolBuffer workspace;  // of the stream; nothing where ops take it of the host's heap
    PoolBuffer slots;      // and the channel's send area; nothing where the channel does not copy
    std::unique_ptr<StepArena> arena;
    std::unique_ptr<StepArena> host_arena;  // null with host_memory
    std::unique_ptr<Stream> stream;
    std::unique_ptr<RankThread> thread;
  };

  RankSet(const RankModel& model, Backend& backend, const RankSetOptions& options)
      : model_(model), backend_(backend), options_(options) {}
  absl::Status AddRank(const RankModel& model);
  static absl::Status TakeHostArena(Backend& backend, size_t bytes, Rank& rank);
  std::optional<RankResult> WaitFor(int rank);
  RankFacts FactsOf(int rank) const;
  // The backend of the rank's device.
  Backend& device(int rank) const;
  CodecLimits WireLimits() const;

  const RankModel& model_;
  Backend& backend_;
  const RankSetOptions options_;
  int64_t visiting_pages_ = std::numeric_limits<int64_t>::max();
  Heartbeat heartbeat_;
  PatternCache patterns_{kPatternBytes};
  std::unique_ptr<RingGroup> ring_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<RankFacts> facts_;
  std::shared_ptr<const StepPlan> plan_;  // of the step that runs; null: none does
  std::vector<RankResult> results_;       // of that step; empty, with room for all
  // Not OK once a rank did not come back, or ring or device cannot be used again.
  absl::Status lost_;
  bool all_back_ = true;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_SET_H_
