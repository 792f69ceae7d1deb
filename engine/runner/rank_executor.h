#ifndef ANNULUS_ENGINE_RUNNER_RANK_EXECUTOR_H_
#define ANNULUS_ENGINE_RUNNER_RANK_EXECUTOR_H_

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/base/heartbeat.h"
#include "engine/memory/kv_pool.h"
#include "engine/memory/step_arena.h"
#include "engine/ring/channel.h"
#include "engine/ring/ring_attention.h"
#include "engine/runner/attention_observer.h"
#include "engine/runner/block_chooser.h"
#include "engine/runner/dilated_sampler.h"
#include "engine/runner/rank_model.h"
#include "engine/sampling/sampler.h"
#include "engine/sparse/pattern_cache.h"
#include "engine/state/step_plan.h"

namespace annulus {

// Heads of one layer that follow the same policy.
struct SequencePart {
  std::shared_ptr<const AttentionPolicy> policy;
  std::vector<bool> heads;  // [kv_heads]
};

// What a rank remembers about a sequence between steps: a copy of its page tables, maintained from
// the plans' deltas, and its sampler if this rank is the home.
struct RankSequence {
  std::vector<int32_t> ring;
  int32_t home = 0;
  std::vector<std::vector<PageEntry>> groups;  // [cache group], ascending first_position
  std::unique_ptr<Sampler> sampler;
  uint32_t version = 0;                              // of the terms; 0: no terms received
  std::vector<std::vector<SequencePart>> attention;  // [layer]; empty: dense
  bool ruled = false;                                // layers follow different policies
  std::vector<LayerSummaries> summaries;             // [layer] if a policy needs them
  SummaryKinds summary_kinds;
  SummaryPages summary_pages;  // empty: no summaries are kept
  bool report_lists = false;
  bool begins_answer = false;  // this step samples the answer's first token
  int64_t rope_length = 0;
  std::vector<std::vector<float>> inverse_frequencies;  // [rope setting]; empty: the model's
};

// The objects a rank works with. All must outlive it.
struct RankParts {
  int rank = 0;
  int device = 0;  // index in the backend; the rank reads the weights' copy there
  const RankModel* model = nullptr;
  Backend* backend = nullptr;  // of that device
  Stream* stream = nullptr;
  RingChannel* channel = nullptr;
  KvPool* pool = nullptr;
  StepArena* arena = nullptr;  // device memory
  // Reachable by host and ops; the same as `arena` if the device uses host memory.
  StepArena* host_arena = nullptr;
  // Device memory for the values of a suspended chunk's rows between layers; null: this rank
  // suspends none.
  StepArena* suspended = nullptr;
  RingSlots slots;                        // destination of copies, if the channel copies
  PatternCache* patterns = nullptr;       // shared by all ranks
  Heartbeat* heartbeat = nullptr;         // shared by all ranks
  AttentionObserver* observer = nullptr;  // null: none
  std::chrono::milliseconds exchange_timeout{30'000};  // longest time without progress on any rank
  bool graphs = true;  // run decode steps as graphs: see Stream::BeginGraph
};

// Bytes of the step arenas, for plans with at most `rows` rows on each rank, in a ring of at most
// `ranks` ranks on such a device. If the device uses host memory, `host` is 0 and `device` covers
// both.
struct StepBytes {
  size_t device = 0;
  size_t host = 0;
};
StepBytes CountStepBytes(const RankModel& model, int rows, int ranks,
                         const BackendCapabilities& device);

// Device bytes of RankParts::suspended, for chunks of at most `rows` rows on a rank and the row
// behind them that is sampled. 0 rows: none are suspended.
size_t CountSuspendedBytes(const RankModel& model, int rows);

// A chunk that a rank has suspended. All that passes from one layer to the next is `residual`; the
// next stretch makes everything else anew.
struct SuspendedRun {
  SuspendedChunk chunk;
  MatrixView residual;                    // [own rows, hidden], in RankParts::suspended
  std::vector<LayerAttention> attention;  // of the layers that have run
};

// Executes steps on one rank: embed, layers (norm, projections, rope, page write, ring attention,
// output, MLP), logits, sample. Not thread-safe; all calls must come from the rank's thread.
class RankExecutor {
 public:
  explicit RankExecutor(const RankParts& parts);

  // Runs this rank's part of the plan. On an error it aborts the channel, so that no peer keeps
  // waiting, and returns the error in RankResult::status.
  RankResult Execute(const StepPlan& plan);

  // Forgets every sequence. For use after an abort.
  void Reset() {
    sequences_.clear();
    suspended_.reset();
  }

 private:
  friend class StepRun;

  // INVALID_ARGUMENT if the plan does not continue from the plans before it.
  absl::Status ApplyUpdates(const StepPlan& plan);
  void ForgetEnded(std::span<const SequenceId> ended);
  void SetAttention(const std::optional<AttentionAssignment>& assignment,
                    RankSequence& sequence) const;
  absl::Status ApplyUpdate(const SequenceUpdate& update);
  absl::Status SetTerms(const SequenceTerms& terms, RankSequence& sequence) const;

  const RankParts parts_;
  const RingAttentionConfig config_;
  RingAttention ring_;
  ChoiceMessages messages_;
  const ChoiceContext choice_;
  BlockChooser chooser_;
  DilatedSampler sampler_;
  std::unordered_map<SequenceId, RankSequence> sequences_;
  std::optional<SuspendedRun> suspended_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_EXECUTOR_H_
