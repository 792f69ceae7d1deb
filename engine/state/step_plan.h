#ifndef ANNULUS_ENGINE_STATE_STEP_PLAN_H_
#define ANNULUS_ENGINE_STATE_STEP_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/api/request.h"
#include "engine/api/result.h"
#include "engine/api/ring.h"
#include "engine/base/shared_value.h"
#include "engine/grammar/machine.h"
#include "engine/sparse/assignment.h"
#include "engine/sparse/block_pattern.h"
#include "kernels/ops/attention.h"

namespace annulus {

// The id of the request. Sequences that check restored pages have no request: theirs count from
// kFirstCheck, which requests, counted from 1, never reach.
using SequenceId = RequestId;
inline constexpr SequenceId kFirstCheck = SequenceId{1} << 61;

// The location of one page of a sequence: `page` of `rank` holds positions from first_position on.
struct PageEntry {
  int32_t rank = 0;
  int32_t page = 0;
  int32_t first_position = 0;

  bool operator==(const PageEntry&) const = default;
};

// How one cache group's page table changed since the previous plan: first remove the oldest
// `drop_front` entries, then append the entries of `append` (ascending first_position).
struct TableDelta {
  int32_t drop_front = 0;
  std::vector<PageEntry> append;

  bool operator==(const TableDelta&) const = default;
};

// [cache group][ring index] ids of the pages that hold the summaries of a sequence's pages
// (engine/sparse/page_summaries.h). Empty for groups with a window.
using SummaryPages = std::vector<std::vector<std::vector<int32_t>>>;

// Positions [begin, end).
struct RowRange {
  int32_t begin = 0;
  int32_t end = 0;

  bool operator==(const RowRange&) const = default;
};

// One query head of one layer.
struct LayerHead {
  int32_t layer = 0;
  int32_t head = 0;

  auto operator<=>(const LayerHead&) const = default;
};

// Asks for the attention of a sequence's sampled rows to parts of its prompt: SampledToken::shares.
struct EvidenceTerms {
  std::vector<LayerHead> heads;  // whose attention counts; ascending, of layers without a window
  // The parts, ascending and apart, each with at least one position.
  std::vector<RowRange> ranges;

  bool operator==(const EvidenceTerms&) const = default;
};

// Positions [first_position, first_position + count), which `rank` computes.
struct RowRun {
  int32_t rank = 0;
  int32_t first_position = 0;
  int32_t count = 0;

  bool operator==(const RowRun&) const = default;
};

// Everything a home rank needs to sample for a sequence. Sent with its first sampled item.
struct SamplingSetup {
  SamplingParams params;        // `seed` is set
  std::vector<int32_t> forced;  // the answer begins with these: see EngineSeams::force_answer
  std::vector<int32_t> prompt;  // for the repetition penalty
  // The answer so far, for penalties and min_tokens; empty before its first token.
  std::vector<int32_t> generated;
  std::vector<int32_t> end_of_text_ids;
  int32_t vocabulary = 0;
  SharedValue<Machine> output;  // what the answer must look like; absent: anything

  bool operator==(const SamplingSetup&) const = default;
};

// What every rank must know about a sequence besides its page tables. Sent once per version; later
// plans refer to it by sequence and version. A change of any field needs a new version, and a
// change of `ring` discards the ranks' page tables: the same update must append all entries anew.
struct SequenceTerms {
  uint32_t version = 0;
  std::vector<int32_t> ring;  // every rank that holds one of its pages, in ring order
  int32_t home = 0;           // samples for the sequence; a member of ring
  std::optional<AttentionAssignment> attention;  // resolved; absent: dense
  SummaryPages summaries;                        // empty: none are kept
  bool report_lists = false;                     // LayerAttention reports the chosen blocks
  int64_t rope_length = 0;                       // selects the rotary frequencies: see RopeLength
  std::optional<EvidenceTerms> evidence;

  bool operator==(const SequenceTerms&) const = default;
};

// What a rank must learn about a sequence before it runs the sequence's items of this step.
struct SequenceUpdate {
  SequenceId sequence = 0;
  uint32_t version = 0;                // version of the terms in effect
  std::optional<SequenceTerms> terms;  // present if the ranks lack this version
  std::vector<TableDelta> tables;      // one per cache group
  std::optional<SamplingSetup> setup;  // with the first sampled item

  bool operator==(const SequenceUpdate&) const = default;
};

// The most rows a sampled item may have.
inline constexpr int kMostSampledRows = 16;

// Stands for the token that the home rank sampled last for the sequence: see PlanItem::tokens.
inline constexpr int32_t kLastSampled = -1;

// What a prefill item is asked for by SamplingParams::prompt_logprobs.
struct PromptScore {
  int32_t alternatives = 0;
  int32_t next_token = 0;  // the one after the item's last row

  bool operator==(const PromptScore&) const = default;
};

// Rows [begin, end) of one sequence. There are two kinds:
// - A prefill item computes prompt rows on the ranks that hold their pages. It yields no token.
// - A sampled item runs on the home rank. The logits of its first row yield the next token. Further
//   rows hold guessed tokens (speculation): row n + 1 counts if row n yielded exactly the token
//   that row n + 1 holds, and then yields the token after it. Rows that do not count have no
//   effect; later steps overwrite their keys and values. All rows of a sampled item lie in one
//   page.
// The last row of a prompt is a sampled item, usually in the same step as the rows before it.
struct PlanItem {
  SequenceId sequence = 0;
  int32_t begin = 0;
  int32_t end = 0;
  // [end - begin]. That of a sampled item with one row may be kLastSampled, so that a step can be
  // planned before the token is known. If the rank could not sample it, the row does not count.
  std::vector<int32_t> tokens;
  RingMode mode = RingMode::kPassKv;  // never kAuto; sampled items are kPassQ
  std::vector<RowRun> runs;           // ascending; together they cover [begin, end)
  bool sampled = false;
  std::vector<int32_t> logits_positions;  // prefill rows to return logits of, ascending
  // Of a prefill item: to return the log probability of every row's next token.
  std::optional<PromptScore> score;

  bool operator==(const PlanItem&) const = default;
};

// The layers [first_layer, end_layer) that one step runs of a chunk that is suspended between
// layers. A chunk is some rows of one prompt. Its steps run layers [0, n), [n, m) and so on; steps
// of other sequences run between them. All its steps have the same items; only the first has
// updates, and only the last returns tokens, logits and attention.
struct Stretch {
  int32_t first_layer = 0;
  int32_t end_layer = 0;
  bool ends_chunk = false;  // whether end_layer is the number of the model's layers

  bool operator==(const Stretch&) const = default;
};

// A chunk of which some layers have run.
struct SuspendedChunk {
  std::vector<PlanItem> items;
  int32_t layers = 0;  // how many have run; at least 1
};

// One step of all ranks, as a plain value without pointers; what ranks remember from earlier plans
// is named by sequence and version. Every rank reads the same plan and does its part. The order of
// items determines the order of all exchanges. Items that need the last layer (NeedsLastLayer) come
// first. A sequence has at most one prefill item and one sampled item per step.
struct StepPlan {
  uint64_t step = 0;
  std::vector<SequenceId> ended;  // ranks forget these sequences before this step
  std::vector<SequenceUpdate> updates;
  std::vector<PlanItem> items;
  std::optional<Stretch> stretch;  // absent: all layers run

  bool operator==(const StepPlan&) const = default;
};

// Whether the rows of the plan's items are fully computed once its step has ended.
inline bool EndsItsChunks(const StepPlan& plan) {
  return !plan.stretch.has_value() || plan.stretch->ends_chunk;
}

// Whether the item's rows need the last layer's queries, not only its keys and values.
inline bool NeedsLastLayer(const PlanItem& item) {
  return item.sampled || item.score.has_value() || !item.logits_positions.empty();
}

// The share of a row's attention that positions [begin, end) got: see EvidenceMasses.
struct EvidenceShare {
  int32_t begin = 0;
  int32_t end = 0;
  float share = 0;

  bool operator==(const EvidenceShare&) const = default;
};

// Shares below this are left out, so a row has at most so many.
inline constexpr float kLeastEvidenceShare = 1.0F / 1024;
inline constexpr int kMostEvidenceShares = 1024;

// A token that a rank has sampled, or why it could not.
struct SampledToken {
  SequenceId sequence = 0;
  int32_t token = 0;
  bool ends_text = false;  // a stop id, or an end-of-text id that is not ignored
  std::optional<TokenLogprob> logprob;
  absl::Status status;  // if not OK, only this request fails; `token` is meaningless
  // If SequenceTerms::evidence: of the row that gave the token, ascending.
  std::vector<EvidenceShare> shares = {};

  bool operator==(const SampledToken&) const = default;
};

// Logits that a plan item asked for with logits_positions.
struct LogitsRow {
  SequenceId sequence = 0;
  int32_t position = 0;
  std::vector<float> logits;  // [vocabulary]

  bool operator==(const LogitsRow&) const = default;
};

// The log probability of the token after a row of an item with PlanItem::score.
struct ScoredRow {
  SequenceId sequence = 0;
  int32_t position = 0;  // of the row
  TokenLogprob logprob;

  bool operator==(const ScoredRow&) const = default;
};

// Time and traffic of one rank in one step.
struct RingCounters {
  double compute_seconds = 0;
  double wait_seconds = 0;  // waiting for peers with nothing else to do
  double send_seconds = 0;
  int64_t bytes_pass_kv = 0;
  int64_t bytes_pass_q = 0;
  int64_t bytes_estimate = 0;  // queries, scores and lists for choosing blocks

  bool operator==(const RingCounters&) const = default;
};

// How one rank attended in one layer of one step, for its rows of one item. Reported for sequences
// with a policy, in layers without a window.
struct LayerAttention {
  SequenceId sequence = 0;
  int32_t layer = 0;
  int32_t begin = 0;            // first position of the item
  PairCount pairs;              // over the rank's rows
  double estimated = 0;         // estimated coverage, summed over query blocks and kv heads
  int64_t estimates = 0;        // number of terms in `estimated`
  std::vector<double> covered;  // [heads] coverage summed over its sampled rows; empty if none
  int32_t probes = 0;           // number of sampled rows
  double contract = 0;          // promised coverage, mean over heads; 0: no contract
  bool raised = false;          // the contract required more than the policy's own blocks
  bool dense = false;           // the contract required all blocks
  double estimate_seconds = 0;  // estimating, sampling and choosing
  // If SequenceTerms::report_lists: the rank's rows and the blocks they attend. If both `lists` and
  // `branches` are empty, they attend everything.
  std::vector<int32_t> rows;
  // Layers and ranks that follow the same lists share them.
  SharedValue<BlockPattern> lists;
  std::vector<DilatedBranch> branches;

  bool operator==(const LayerAttention&) const = default;
};

// What one rank returns from one step.
struct RankResult {
  absl::Status status;
  // For the sequences whose home is this rank, in the order of the plan's items. An item
  // contributes one token for each of its rows that count, in order.
  std::vector<SampledToken> tokens;
  std::vector<LogitsRow> logits;
  std::vector<ScoredRow> scored;
  RingCounters ring;
  std::vector<LayerAttention> attention;  // for sequences with a policy

  bool operator==(const RankResult&) const = default;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_STATE_STEP_PLAN_H_
