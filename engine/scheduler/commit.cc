// How a step that was planned changes the state: when it starts, and by its results.

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/scheduler/repair.h"
#include "engine/scheduler/scheduler.h"
#include "engine/scheduler/sequence_index.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

void CommitTables(const SequenceUpdate& update, const PlanLimits& limits, Sequence& sequence) {
  for (size_t g = 0; g < update.tables.size(); ++g) {
    GroupTable& group = sequence.groups[g];
    group.pending_drop = 0;
    for (const PageEntry& entry : update.tables[g].append) {
      if (entry.first_position < group.mapped_end) continue;  // cached, only announced
      group.entries.push_back(entry);
      group.mapped_end = entry.first_position + limits.page_tokens;
    }
  }
  sequence.announced = true;
  if (update.setup.has_value()) sequence.setup_sent = true;
}

// All rows below `end` are written: of the pages that end there, those that were not complete
// before are now.
void CompletePages(const Sequence& sequence, int32_t end, const PlanLimits& limits,
                   PageBook& pages) {
  const int32_t page_tokens = limits.page_tokens;
  for (const GroupTable& group : sequence.groups) {
    for (int32_t first = sequence.computed / page_tokens * page_tokens; first + page_tokens <= end;
         first += page_tokens) {
      const PageEntry* const entry = group.At(first, page_tokens);
      if (entry != nullptr) pages.Complete({entry->rank, entry->page});
    }
  }
}

// Pages that no later row can see go back to the sequence; the next plan tells the ranks.
void DropOutsideWindows(const PlanLimits& limits, Sequence& sequence, PageBook& pages) {
  for (size_t g = 0; g < sequence.groups.size(); ++g) {
    const int32_t window = limits.group_windows[g];
    if (window == 0) continue;
    GroupTable& group = sequence.groups[g];
    // The next row stands at `computed` and sees positions above computed - window.
    const int64_t visible = static_cast<int64_t>(sequence.computed) - window + 1;
    size_t drop = 0;
    while (drop < group.entries.size() &&
           group.entries[drop].first_position + limits.page_tokens <= visible) {
      const PageEntry& entry = group.entries[drop++];
      pages.Recycle(sequence.owner, {entry.rank, entry.page});
    }
    group.entries.erase(group.entries.begin(), group.entries.begin() + drop);
    group.pending_drop += static_cast<int32_t>(drop);
  }
}

// Rows below `end` are computed and stay.
void Advance(int32_t end, const PlanLimits& limits, Sequence& sequence, PageBook& pages) {
  if (end <= sequence.computed) return;
  CompletePages(sequence, end, limits, pages);
  sequence.computed = end;
}

}  // namespace

void StartStep(const StepPlan& plan, const PlanLimits& limits, EngineState& state,
               PageBook& pages) {
  ANNULUS_CHECK(plan.step == state.step) << "plan of another step";
  const SequenceIndex sequences(state);
  for (const SequenceUpdate& update : plan.updates) {
    Sequence& sequence = sequences.at(update.sequence);
    for (size_t g = 0; g < update.tables.size(); ++g) {
      for (const PageEntry& entry : update.tables[g].append) {
        if (entry.first_position < sequence.groups[g].mapped_end) continue;  // only announced
        pages.BeginWrite(sequence.owner, {entry.rank, entry.page}, static_cast<int>(g));
      }
    }
    CommitTables(update, limits, sequence);
  }
  // Last: if memory runs out before, the ranks still have to be told who has ended.
  ++state.step;
  state.ended.clear();
}

absl::Status CheckAnswered(const StepPlan& plan, const std::vector<RankResult>& results) {
  const bool ends = EndsItsChunks(plan);
  const auto asked = std::count_if(plan.items.begin(), plan.items.end(),
                                   [ends](const PlanItem& item) { return item.sampled && ends; });
  int64_t answered = 0;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const std::vector<SampledToken>& tokens = results[rank].tokens;
    auto item = plan.items.begin();
    for (size_t i = 0; i < tokens.size(); ++item, ++answered) {
      item = std::find_if(item, plan.items.end(), [&](const PlanItem& next) {
        return next.sampled && next.sequence == tokens[i].sequence &&
               next.runs.front().rank == static_cast<int32_t>(rank);
      });
      if (item == plan.items.end()) {
        return absl::InternalError(absl::StrCat("rank ", rank, " sampled for sequence ",
                                                tokens[i].sequence, ", which it was not asked to"));
      }
      // A row counts if the one before it gave the token that it holds.
      const std::span<const int32_t> rows = item->tokens;
      size_t row = 1;
      for (++i; i < tokens.size() && tokens[i].sequence == item->sequence; ++i, ++row) {
        if (row < rows.size() && tokens[i - 1].status.ok() && tokens[i - 1].token == rows[row]) {
          continue;
        }
        return absl::InternalError(absl::StrCat("rank ", rank, " sampled for row ", row,
                                                " of sequence ", item->sequence,
                                                ", which does not count"));
      }
    }
  }
  if (answered == asked) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("ranks sampled for ", answered, " sequences of the ", asked, " they were to"));
}

void CommitStep(const StepPlan& plan, const std::vector<RankResult>& results,
                const PlanLimits& limits, EngineState& state, PageBook& pages) {
  const SequenceIndex sequences(state);
  state.after_stretch = plan.stretch.has_value();
  if (plan.stretch.has_value()) {
    Sequence& sequence = sequences.at(plan.items[0].sequence);
    if (!plan.stretch->ends_chunk) {
      sequence.suspended = SuspendedChunk{plan.items, plan.stretch->end_layer};
      return;
    }
    sequence.suspended.reset();
  }
  std::unordered_map<SequenceId, int32_t> counted;  // end of the rows of a sampled item that count
  bool repairs = false;
  for (const PlanItem& item : plan.items) {
    Sequence& sequence = sequences.at(item.sequence);
    sequence.draft.clear();
    if (item.sampled) {
      counted[item.sequence] = item.begin;
    } else if (IsRepair(item, sequence)) {
      CommitRepair(item, sequence, limits, pages);
      repairs = true;
    } else {
      Advance(item.end, limits, sequence, pages);
    }
  }
  for (const RankResult& result : results) {
    for (const SampledToken& token : result.tokens) {
      Sequence& sequence = sequences.at(token.sequence);
      Advance(++counted.at(token.sequence), limits, sequence, pages);
      if (token.status.ok()) sequence.tokens.push_back(token.token);
    }
  }
  if (repairs) FindNextLost(limits, state, pages);
}

void DropOutsideWindows(const PlanLimits& limits, EngineState& state, PageBook& pages) {
  for (const auto& sequence : state.running) DropOutsideWindows(limits, *sequence, pages);
}

}  // namespace annulus
