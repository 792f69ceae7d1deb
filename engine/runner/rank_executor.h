#ifndef ANNULUS_ENGINE_RUNNER_RANK_EXECUTOR_H_
#define ANNULUS_ENGINE_RUNNER_RANK_EXECUTOR_H_

#include <memory>
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

// The heads of one layer that follow one policy.
struct SequencePart {
  std::shared_ptr<const AttentionPolicy> policy;
  std::vector<bool> heads;  // [kv_heads]
};

// What a rank remembers of a sequence between steps: a mirror of its page tables, grown by the
// plans' deltas, and its sampler where this rank is the home.
struct RankSequence {
  std::vector<int32_t> ring;
  int32_t home = 0;
  std::vector<std::vector<PageEntry>> groups;  // [cache group], ascending first_position
  std::unique_ptr<Sampler> sampler;
  uint32_t version = 0;                              // of the terms; 0: none are known
  std::vector<std::vector<SequencePart>> attention;  // [layer]; none: dense
  bool ruled = false;                                // layers differ
  std::vector<LayerSummaries> summaries;             // [layer], under a policy
  SummaryKinds summary_kinds;
  SummaryPages summary_pages;  // empty: no summaries are kept
  bool report_lists = false;
  bool begins_answer = false;  // its first row to be sampled is in this step
  int64_t rope_length = 0;
  std::vector<std::vector<float>> inverse_frequencies;  // [rope setting]; empty: the model's
};

// The parts that a rank works with; all outlive it.
struct RankParts {
  int rank = 0;
  int device = 0;  // of the backend's, whose copy of the weights this rank reads
  const RankModel* model = nullptr;
  Backend* backend = nullptr;  // of that device
  Stream* stream = nullptr;
  RingChannel* channel = nullptr;
  KvPool* pool = nullptr;
  StepArena* arena = nullptr;  // of the device
  StepArena* host_arena =
      nullptr;      // that the host and ops reach; the same where that is one memory
  RingSlots slots;  // where the channel copies to, if it does
  PatternCache* patterns = nullptr;                    // of all ranks together
  Heartbeat* heartbeat = nullptr;                      // of all ranks together
  AttentionObserver* observer = nullptr;               // null: nobody looks on
  std::chrono::milliseconds exchange_timeout{30'000};  // longest silence of all ranks
  bool graphs = true;                                  // steps that decode: see Stream::BeginGraph
};

// Bytes of the step arenas for plans that give this rank at most `rows` rows and its peers as many
// each, in a ring of at most `ranks`, on such a device. `host` is 0 where the host reads the
// device's memory: then `device` has room for both.
struct StepBytes {
  size_t device = 0;
  size_t host = 0;
};
StepBytes CountStepBytes(const RankModel& model, int rows, int ranks,
                         const BackendCapabilities& device);

// Executes steps on one rank: embed, layers (norm, projections, rope, page write, ring attention,
// output, MLP), logits, sample. Not thread-safe: all calls on the rank's thread.
class RankExecutor {
 public:
  explicit RankExecutor(const RankParts& parts);

  // Does this rank's part of the plan. On an error the channel is aborted, so that no peer waits,
  // and the result carries the status.
  RankResult Execute(const StepPlan& plan);

  // Forgets every sequence; after an abort.
  void Reset() { sequences_.clear(); }

 private:
  friend class StepRun;

  // INVALID_ARGUMENT: the plan does not go on where those before it ended.
  absl::Status ApplyUpdates(const StepPlan& plan);
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
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_EXECUTOR_H_
