#ifndef ANNULUS_ENGINE_RUNNER_RANK_STATE_H_
#define ANNULUS_ENGINE_RUNNER_RANK_STATE_H_

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/base/heartbeat.h"
#include "engine/grammar/grammar_caches.h"
#include "engine/memory/kv_pool.h"
#include "engine/memory/step_arena.h"
#include "engine/ring/channel.h"
#include "engine/ring/ring_attention.h"
#include "engine/runner/attention_observer.h"
#include "engine/runner/choice/block_chooser.h"
#include "engine/runner/choice/coverage_sampler.h"
#include "engine/runner/choice/evidence_masses.h"
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
  // On the home rank: the token that kLastSampled stands for. Absent before the first one; 0 if it
  // could not be sampled.
  std::optional<int32_t> last_sampled;
  uint32_t version = 0;                              // of the terms; 0: no terms received
  std::vector<std::vector<SequencePart>> attention;  // [layer]; empty: dense
  bool ruled = false;                                // layers follow different policies
  std::vector<LayerSummaries> summaries;             // [layer] if a policy needs them
  SummaryKinds summary_kinds;
  SummaryPages summary_pages;  // empty: no summaries are kept
  bool report_lists = false;
  bool begins_answer = false;             // the running step samples the answer's first token
  std::optional<EvidenceTerms> evidence;  // absent: none is asked for
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
  RingSlots slots;                               // destination of copies, if the channel copies
  PatternCache* patterns = nullptr;              // shared by all ranks
  Heartbeat* heartbeat = nullptr;                // shared by all ranks
  AttentionObserver* observer = nullptr;         // null: none
  std::chrono::milliseconds exchange_timeout{};  // EngineOptions::exchange_timeout
  bool graphs = true;  // run decode steps as graphs: see Stream::BeginGraph
};

// A chunk that a rank has suspended between layers. Only `passed_on` passes from one layer to the
// next; the next stretch computes everything else again.
struct SuspendedRun {
  SuspendedChunk chunk;
  std::span<float> passed_on;             // [own rows] of PassedOn, in RankParts::suspended
  std::vector<LayerAttention> attention;  // of the layers that have run
  std::vector<EvidenceItem> evidence;     // likewise; its terms are the sequence's
};

// Everything that a rank works with and remembers between steps. RankExecutor owns it, and the
// parts of a step use it. Not thread-safe.
struct RankState {
  explicit RankState(const RankParts& parts);

  const RankParts parts;
  const RingAttentionConfig config;
  const std::vector<RingShape> shapes;  // [layer]
  RingAttention ring;
  ChoiceMessages messages;  // of the running step
  const ChoiceContext choice;
  BlockChooser chooser;
  CoverageSampler sampler;
  EvidenceMasses evidence;
  GrammarCaches grammars;  // of the sequences whose home this rank is
  std::unordered_map<SequenceId, RankSequence> sequences;
  std::optional<SuspendedRun> suspended;

  const RankModel& model() const { return *parts.model; }
  const ModelWeights& weights() const { return model().weights_on(parts.device); }
  const OpTable& ops() const { return *model().ops; }
  Stream& stream() const { return *parts.stream; }
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_RANK_STATE_H_
