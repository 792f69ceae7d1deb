#ifndef ANNULUS_ENGINE_STATE_STEP_PLAN_H_
#define ANNULUS_ENGINE_STATE_STEP_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/api/request.h"
#include "engine/api/result.h"
#include "engine/api/ring.h"
#include "engine/base/shared_value.h"
#include "engine/sparse/assignment.h"
#include "engine/sparse/block_pattern.h"
#include "kernels/ops/attention.h"

namespace annulus {

using SequenceId = RequestId;

// Where one page of a sequence lies: `page` of `rank` holds positions first_position onwards.
struct PageEntry {
  int32_t rank = 0;
  int32_t page = 0;
  int32_t first_position = 0;

  bool operator==(const PageEntry&) const = default;
};

// The change of one cache group's page table since the plan before: first forget the oldest
// `drop_front` entries, then add `append` (ascending first_position) at the end.
struct TableDelta {
  int32_t drop_front = 0;
  std::vector<PageEntry> append;

  bool operator==(const TableDelta&) const = default;
};

// Pages that hold the summaries of a sequence's pages (engine/sparse/page_summaries.h): [cache
// group][ring index] page ids. Groups with a window have none.
using SummaryPages = std::vector<std::vector<std::vector<int32_t>>>;

// Positions [first_position, first_position + count), computed by `rank`.
struct RowRun {
  int32_t rank = 0;
  int32_t first_position = 0;
  int32_t count = 0;

  bool operator==(const RowRun&) const = default;
};

// What a home rank needs to sample for a sequence; sent once, before its first sampled item, and
// again to a rank that has lost it.
struct SamplingSetup {
  SamplingParams params;        // `seed` is set
  std::vector<int32_t> prompt;  // for the repetition penalty
  // Of the answer so far, which penalties and min_tokens count; empty before its first token.
  std::vector<int32_t> generated;
  std::vector<int32_t> end_of_text_ids;
  int32_t vocabulary = 0;

  bool operator==(const SamplingSetup&) const = default;
};

// What every rank must know of a sequence beside its tables. Sent once; plans name it by sequence
// and version. It never changes but for another version.
struct SequenceTerms {
  uint32_t version = 0;
  std::vector<int32_t> ring;                     // every rank that holds a page of it, ring order
  int32_t home = 0;                              // member of ring
  std::optional<AttentionAssignment> attention;  // resolved; absent: dense
  SummaryPages summaries;                        // empty: none are kept
  bool report_lists = false;                     // LayerAttention is to say which were chosen
  int64_t rope_length = 0;                       // which rotary frequencies: RopeLength

  bool operator==(const SequenceTerms&) const = default;
};

// What a rank must know of a sequence before it runs the sequence's items of this step.
struct SequenceUpdate {
  SequenceId sequence = 0;
  uint32_t version = 0;                // of the terms that hold now
  std::optional<SequenceTerms> terms;  // present when the ranks do not have that version yet
  std::vector<TableDelta> tables;      // one per cache group
  std::optional<SamplingSetup> setup;  // before the first sampled item

  bool operator==(const SequenceUpdate&) const = default;
};

// Most rows of a sampled item.
inline constexpr int kMostSampledRows = 16;

// Rows [begin, end) of one sequence. A prefill item's rows run where their pages are written and
// give no token. A sampled item runs at the home rank: the logits of its first row give the next
// token. Further rows hold tokens that are guessed to follow (speculation): row n + 1 counts if row
// n gave the token that it holds, and gives the token after it. Rows that do not count are as if
// they had not been run; their places in the pages are written again. All rows of a sampled item
// lie in one page.
// The last row of a prompt is a sampled item of the same step as the rows before it.
struct PlanItem {
  SequenceId sequence = 0;
  int32_t begin = 0;
  int32_t end = 0;
  std::vector<int32_t> tokens;        // [end - begin]
  RingMode mode = RingMode::kPassKv;  // never kAuto; sampled items are kPassQ
  std::vector<RowRun> runs;           // ascending, cover [begin, end)
  bool sampled = false;
  std::vector<int32_t> logits_positions;  // ascending rows of a prefill item to return logits of

  bool operator==(const PlanItem&) const = default;
};

// One step of all ranks, as a value: nothing in it points to anything, and what a rank is to
// remember is named by sequence and version. Every rank reads the same plan and does its part; the
// order of items fixes the order of all exchanges. Items that need the last layer (sampled, or with
// logits_positions) come before those that do not. A sequence has at most one prefill and one
// sampled item in a step.
struct StepPlan {
  uint64_t step = 0;
  std::vector<SequenceId> ended;  // sequences that the ranks forget before this step
  std::vector<SequenceUpdate> updates;
  std::vector<PlanItem> items;

  bool operator==(const StepPlan&) const = default;
};

// True when the last layer's queries are needed for the item's rows, not only its keys and values.
inline bool NeedsLastLayer(const PlanItem& item) {
  return item.sampled || !item.logits_positions.empty();
}

struct SampledToken {
  SequenceId sequence = 0;
  int32_t token = 0;
  bool ends_text = false;  // a stop id, or end of text that is not ignored
  std::optional<TokenLogprob> logprob;
  absl::Status status;  // not OK: this request alone cannot go on, and `token` means nothing

  bool operator==(const SampledToken&) const = default;
};

struct LogitsRow {
  SequenceId sequence = 0;
  int32_t position = 0;
  std::vector<float> logits;  // [vocabulary]

  bool operator==(const LogitsRow&) const = default;
};

// Seconds and bytes of one rank in one step.
struct RingCounters {
  double compute_seconds = 0;
  double wait_seconds = 0;  // exposed: the rank had nothing else to do
  double send_seconds = 0;
  int64_t bytes_pass_kv = 0;
  int64_t bytes_pass_q = 0;
  int64_t bytes_estimate = 0;  // queries, scores and lists that settle which blocks are attended

  bool operator==(const RingCounters&) const = default;
};

// How one rank's rows of one prefill or sampled item attended in one layer without a window, under
// a policy.
struct LayerAttention {
  SequenceId sequence = 0;
  int32_t layer = 0;
  int32_t begin = 0;     // first position of the item
  PairCount pairs;       // of the rank's rows
  double estimated = 0;  // sums over its query blocks and kv heads
  int64_t estimates = 0;
  std::vector<double> covered;  // [heads] sums over its sampled rows; empty where none is sampled
  int32_t probes = 0;           // sampled rows
  double contract = 0;          // coverage that was promised, mean over heads; 0: none
  bool raised = false;          // the contract took more than the policy's own blocks
  bool dense = false;           // .. all of them
  double estimate_seconds = 0;
  // If SequenceTerms::report_lists: the rank's rows, and their lists; absent: they attend all, or
  // what the branches keep.
  std::vector<int32_t> rows;
  // Layers and ranks that follow the same lists share them.
  SharedValue<BlockPattern> lists;
  std::vector<DilatedBranch> branches;

  bool operator==(const LayerAttention&) const = default;
};

// What one rank brings back from one step.
struct RankResult {
  absl::Status status;
  // Of the sequences whose home this rank is, in the order of the plan's items.
  // An item has a token for each of its rows that count, one behind the other.
  std::vector<SampledToken> tokens;
  std::vector<LogitsRow> logits;
  RingCounters ring;
  std::vector<LayerAttention> attention;  // of sequences with a policy

  bool operator==(const RankResult&) const = default;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_STATE_STEP_PLAN_H_
