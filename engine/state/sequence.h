#ifndef ANNULUS_ENGINE_STATE_SEQUENCE_H_
#define ANNULUS_ENGINE_STATE_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/state/step_plan.h"

namespace annulus {

// The coordinator's page table of one cache group of one sequence.
struct GroupTable {
  std::vector<PageEntry> entries;  // ascending first_position, contiguous positions
  int32_t mapped_end = 0;          // positions below have had a page
  int32_t pending_drop = 0;        // entries dropped here that the ranks still have
};

// A sequence that holds pages. Its pages were all taken at admission: those not in a table yet, or
// no longer, wait in the page book's reserve of its id. Plain data.
struct Sequence {
  SequenceId id = 0;
  std::vector<int32_t> tokens;  // the prompt, then what was sampled
  int32_t prompt_length = 0;
  int32_t computed = 0;  // positions whose keys and values are written
  // Guessed to follow `tokens`; the next step may try some of them. Empty while in prefill.
  std::vector<int32_t> draft;
  bool paused = false;  // parked, its reader is behind: left out of plans, holds no slot
  std::vector<int32_t> ring;
  int32_t home = 0;
  std::vector<GroupTable> groups;
  std::shared_ptr<const SamplingSetup> setup;
  std::shared_ptr<const AttentionAssignment> attention;  // null: dense
  std::shared_ptr<const SummaryPages> summaries;         // taken at admission too; null: none
  bool report_lists = false;                             // see SequenceTerms
  int64_t rope_length = 0;                               // which rotary frequencies: RopeLength
  bool setup_sent = false;
  bool announced = false;  // the ranks know its tables; false when it began with cached pages

  bool in_prefill() const { return computed < prompt_length; }
};

// Everything that planning reads. Sequences are in admission order.
struct EngineState {
  uint64_t step = 0;
  std::vector<std::unique_ptr<Sequence>> running;
  std::vector<SequenceId> ended;  // since the last plan
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_STATE_SEQUENCE_H_
