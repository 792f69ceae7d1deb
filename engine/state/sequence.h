#ifndef ANNULUS_ENGINE_STATE_SEQUENCE_H_
#define ANNULUS_ENGINE_STATE_SEQUENCE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "engine/state/step_plan.h"

namespace annulus {

// The coordinator's page table for one cache group of one sequence.
struct GroupTable {
  std::vector<PageEntry> entries;  // ascending first_position, contiguous positions
  int32_t mapped_end = 0;          // every position below has had a page
  int32_t pending_drop = 0;        // entries dropped from this table that the ranks still have
};

// A running sequence. It took the pages for its first `reserved` positions at admission, and takes
// others as it grows; those that are not yet, or no longer, in a page table are in the page book's
// reserve under its id. Plain data.
struct Sequence {
  SequenceId id = 0;
  std::vector<int32_t> tokens;  // the prompt, then the sampled tokens
  int32_t prompt_length = 0;
  // The prompt's last tokens that are its answer so far: it was preempted after them.
  int32_t answered = 0;
  int32_t computed = 0;  // the keys and values of positions below are written
  // Guesses of the tokens after `tokens`; the next step may verify some of them. Empty in prefill.
  std::vector<int32_t> draft;
  // Positions below have a page, or one in reserve. A whole number of pages; the sequence is not
  // planned beyond it. The default: all that it can grow to.
  int32_t reserved = std::numeric_limits<int32_t>::max();
  bool paused = false;  // parked for a slow reader: not planned, takes no slot
  // Rows from `computed` on of which some layers have run. Goes on also while paused, so that no
  // other chunk waits for it. At most one sequence has one.
  std::optional<SuspendedChunk> suspended;
  // The ranks that share the sequence, in ring order, and the one of them that samples for it.
  std::vector<int32_t> ring;
  int32_t home = 0;
  std::vector<GroupTable> groups;
  std::shared_ptr<const SamplingSetup> setup;
  std::shared_ptr<const AttentionAssignment> attention;  // null: dense
  std::shared_ptr<const SummaryPages> summaries;         // also taken at admission; null: none
  bool report_lists = false;                             // see SequenceTerms
  int64_t rope_length = 0;  // selects the rotary frequencies: see RopeLength
  bool setup_sent = false;
  bool announced = false;  // the ranks have its tables; false if it started with cached pages

  bool in_prefill() const { return computed < prompt_length; }
  // Whether it must grow before its next rows; a prompt has all its pages.
  bool needs_pages() const { return !in_prefill() && computed >= reserved; }
};

// All input of planning. `running` is in admission order.
struct EngineState {
  uint64_t step = 0;  // number of the next plan
  std::vector<std::unique_ptr<Sequence>> running;
  std::vector<SequenceId> ended;  // since the last plan; the ranks still have to forget them
  bool after_stretch = false;     // the last step ran some layers of a chunk and no stream
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_STATE_SEQUENCE_H_
