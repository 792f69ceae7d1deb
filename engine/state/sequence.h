#ifndef ANNULUS_ENGINE_STATE_SEQUENCE_H_
#define ANNULUS_ENGINE_STATE_SEQUENCE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "engine/memory/page_owner.h"
#include "engine/sparse/pattern_pairs.h"
#include "engine/state/step_plan.h"

namespace annulus {

// The coordinator's page table for one cache group of one sequence.
struct GroupTable {
  std::vector<PageEntry> entries;  // ascending first_position, contiguous positions
  // Every position below has a page in the table, or had one that has left the window.
  int32_t mapped_end = 0;
  // How many entries were dropped at the front since the last plan, which the ranks still have.
  int32_t pending_drop = 0;

  // The entry of the page that begins at `first`; null if it is not in the table.
  const PageEntry* At(int32_t first, int32_t page_tokens) const {
    if (entries.empty() || first < entries.front().first_position) return nullptr;
    const auto index = static_cast<size_t>((first - entries.front().first_position) / page_tokens);
    return index < entries.size() ? &entries[index] : nullptr;
  }
};

// A running sequence. At admission it takes the pages for its first `reserved` positions, and more
// as it grows. Its pages that are not in a page table, not yet or no longer, are in the page book's
// reserve for its owner. Plain data.
struct Sequence {
  SequenceId id = 0;
  PageOwner owner;              // of its pages: its request, or a check of restored pages
  std::vector<int32_t> tokens;  // the prompt, then the sampled tokens
  int32_t prompt_length = 0;
  // How many of the prompt's last tokens are the answer so far, sampled before a preemption.
  int32_t answered = 0;
  int32_t computed = 0;  // the keys and values of all positions below were written
  // Of these, the first ones in a row whose pages ranks have lost (PageState::kLost). Until no page
  // is lost any more, the sequence computes those again, and nothing else: see scheduler/repair.h.
  std::optional<RowRange> lost;
  // Guesses of the tokens after `tokens`. The next step may try some of them. Empty in prefill.
  std::vector<int32_t> draft;
  // Every position below has a page, in a table or in reserve. A multiple of page_tokens; no step
  // plans rows from here on. The default: it has all pages that it can grow to.
  int32_t reserved = std::numeric_limits<int32_t>::max();
  // Parked for a slow reader: plans leave it out, and it does not count towards max_running.
  bool paused = false;
  // Its rows may make a step fail, so steps with them have no others. See StepRecovery.
  bool apart = false;
  // The chunk from `computed` or, if rows are lost, lost->begin on, if some of its layers have run.
  // It continues even while the sequence is paused, since other chunks wait for it. At most one
  // sequence has one.
  std::optional<SuspendedChunk> suspended;
  // The ranks that share the sequence, in ring order, and the one of them that samples for it.
  std::vector<int32_t> ring;
  int32_t home = 0;
  std::vector<GroupTable> groups;
  std::shared_ptr<const SamplingSetup> setup;
  std::shared_ptr<const AttentionAssignment> attention;  // null: dense
  // Counts the pairs that its prompt's rows attend; null unless `attention` follows patterns.
  std::shared_ptr<const PatternPairs> pattern_pairs;
  std::shared_ptr<const SummaryPages> summaries;  // fixed at admission; null: none
  bool report_lists = false;                      // see SequenceTerms
  std::shared_ptr<const EvidenceTerms> evidence;  // null: none is asked for
  std::optional<int32_t> prompt_logprobs;         // see SamplingParams
  int64_t rope_length = 0;                        // selects the rotary frequencies: see RopeLength
  bool setup_sent = false;                        // a plan has told the ranks `setup`
  bool announced = false;                         // a plan has told the ranks its terms and tables

  bool in_prefill() const { return computed < prompt_length; }
  // Whether its next rows are those of a prefill item: of its prompt, or lost ones.
  bool prefills() const { return in_prefill() || lost.has_value(); }
  // The keys and values of all positions below are there.
  int32_t whole() const { return lost.has_value() ? lost->begin : computed; }
  // Whether it checks restored pages, so that it has no client.
  bool is_check() const { return owner.kind == PageOwner::Kind::kCheck; }
  // Whether it needs more pages before its next row. Never in prefill: a prompt has all its pages.
  bool needs_pages() const { return !in_prefill() && computed >= reserved; }
};

// The state that plans are made from.
struct EngineState {
  uint64_t step = 0;                               // number of the next plan
  std::vector<std::unique_ptr<Sequence>> running;  // in the order of admission
  // Ended since the last plan. The next plan tells the ranks to forget them.
  std::vector<SequenceId> ended;
  bool after_stretch = false;  // the last step was a stretch: see StepPlan::stretch
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_STATE_SEQUENCE_H_
