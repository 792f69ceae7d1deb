#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace annulus {
namespace {

// Builds one plan; holds how many rows each rank has been given so far.
class Planner {
 public:
  Planner(const EngineState& state, const PlanLimits& limits, const ModePolicy& policy)
      : state_(state), limits_(limits), policy_(policy), rows_(limits.ranks, 0) {}

  StepPlan Run() {
    plan_.step = state_.step;
    plan_.ended = state_.ended;
    const size_t count = state_.running.size();
    for (size_t i = 0; i < count; ++i) {
      const Sequence& sequence = *state_.running[(i + state_.step) % count];
      if (!sequence.paused && !sequence.in_prefill()) PlanDecode(sequence);
    }
    for (const auto& sequence : state_.running) {
      if (!sequence->paused && sequence->in_prefill()) PlanPrefill(*sequence);
    }
    // Sampled items first: the last layer then works on a prefix of the rows.
    std::stable_partition(plan_.items.begin(), plan_.items.end(), NeedsLastLayer);
    return std::move(plan_);
  }

 private:
  int RoomOf(int rank) const { return limits_.rows_per_rank - rows_[rank]; }

  void PlanDecode(const Sequence& sequence) {
    if (RoomOf(sequence.home) < 1) return;
    AddUpdate(sequence, sequence.computed + 1, true);
    AddSampled(sequence, sequence.computed);
  }

  // The largest chunk end that leaves every ring rank within its rows.
  int32_t ChunkEnd(const Sequence& sequence) const {
    const int degree = static_cast<int>(sequence.ring.size());
    const int32_t page = limits_.page_tokens;
    const int32_t stripe = page * degree;
    int room = limits_.rows_per_rank;
    for (const int32_t rank : sequence.ring) room = std::min(room, RoomOf(rank));
    // A rank owns at most `page` rows of each stripe that the chunk touches. One row is kept for
    // the sampled row of the prompt's end.
    const int32_t last = sequence.prompt_length - 1;
    const int32_t first_stripe = sequence.computed / stripe;
    const int64_t stripes = room / page;
    const int64_t aligned = (first_stripe + stripes) * static_cast<int64_t>(stripe);
    if (aligned > last) {
      // The prompt's end is in reach if its home can also take the sampled row.
      if (HomeRows(sequence, last) + 1 <= RoomOf(sequence.home)) return sequence.prompt_length;
      return std::max(sequence.computed, last / stripe * stripe);
    }
    return static_cast<int32_t>(std::max<int64_t>(sequence.computed, aligned));
  }

  // Rows of [computed, end) that the home rank owns.
  int HomeRows(const Sequence& sequence, int32_t end) const {
    int rows = 0;
    for (const RowRun& run : Runs(sequence, sequence.computed, end)) {
      if (run.rank == sequence.home) rows += run.count;
    }
    return rows;
  }

  std::vector<RowRun> Runs(const Sequence& sequence, int32_t begin, int32_t end) const {
    std::vector<RowRun> runs;
    const int32_t page = limits_.page_tokens;
    const int degree = static_cast<int>(sequence.ring.size());
    for (int32_t position = begin; position < end;) {
      const int32_t next = std::min<int32_t>(end, (position / page + 1) * page);
      const int32_t rank = sequence.ring[PlaceOnRing(position / page * page, page, degree)];
      if (!runs.empty() && runs.back().rank == rank) {
        runs.back().count += next - position;
      } else {
        runs.push_back({rank, position, next - position});
      }
      position = next;
    }
    return runs;
  }

  void PlanPrefill(const Sequence& sequence) {
    const int32_t end = ChunkEnd(sequence);
    if (end <= sequence.computed) return;
    const bool last = end == sequence.prompt_length;
    AddUpdate(sequence, end, last);
    const int32_t prefill_end = last ? end - 1 : end;
    if (prefill_end > sequence.computed) AddPrefill(sequence, prefill_end);
    if (last) AddSampled(sequence, end - 1);
  }

  void AddPrefill(const Sequence& sequence, int32_t end) {
    PlanItem item;
    item.sequence = sequence.id;
    item.begin = sequence.computed;
    item.end = end;
    item.tokens.assign(sequence.tokens.begin() + item.begin, sequence.tokens.begin() + end);
    item.runs = Runs(sequence, item.begin, end);
    for (const RowRun& run : item.runs) rows_[run.rank] += run.count;
    item.mode =
        policy_.mode != RingMode::kAuto
            ? policy_.mode
            : ChooseRingMode(end - item.begin, item.begin, static_cast<int>(sequence.ring.size()),
                             policy_.geometry, policy_.rates);
    plan_.items.push_back(std::move(item));
  }

  void AddSampled(const Sequence& sequence, int32_t position) {
    PlanItem item;
    item.sequence = sequence.id;
    item.begin = position;
    item.end = position + 1;
    item.tokens = {sequence.tokens[position]};
    item.mode = RingMode::kPassQ;
    item.runs = {{sequence.home, position, 1}};
    item.sampled = true;
    ++rows_[sequence.home];
    plan_.items.push_back(std::move(item));
  }

  // Places the pages that positions up to `end` need.
  void AddUpdate(const Sequence& sequence, int32_t end, bool samples) {
    SequenceUpdate update;
    update.sequence = sequence.id;
    update.ring = sequence.ring;
    update.home = sequence.home;
    if (samples && !sequence.setup_sent) update.setup = sequence.setup;
    std::vector<size_t> taken(sequence.ring.size(), 0);
    const int degree = static_cast<int>(sequence.ring.size());
    for (const GroupTable& group : sequence.groups) {
      TableDelta delta;
      delta.drop_front = group.pending_drop;
      for (int32_t first = group.mapped_end; first < end; first += limits_.page_tokens) {
        const int index = PlaceOnRing(first, limits_.page_tokens, degree);
        const std::vector<int32_t>& spare = sequence.spare[index];
        ANNULUS_CHECK(taken[index] < spare.size()) << "admission gave too few pages";
        const int32_t page = spare[spare.size() - 1 - taken[index]++];
        delta.append.push_back({sequence.ring[index], page, first});
      }
      update.tables.push_back(std::move(delta));
    }
    plan_.updates.push_back(std::move(update));
  }

  const EngineState& state_;
  const PlanLimits& limits_;
  const ModePolicy& policy_;
  std::vector<int> rows_;
  StepPlan plan_;
};

int RingIndex(const Sequence& sequence, int32_t rank) {
  const auto found = std::find(sequence.ring.begin(), sequence.ring.end(), rank);
  ANNULUS_CHECK(found != sequence.ring.end()) << "rank " << rank << " is not in the ring";
  return static_cast<int>(found - sequence.ring.begin());
}

void CommitTables(const SequenceUpdate& update, const PlanLimits& limits, Sequence& sequence) {
  for (size_t g = 0; g < update.tables.size(); ++g) {
    GroupTable& group = sequence.groups[g];
    group.pending_drop = 0;
    for (const PageEntry& entry : update.tables[g].append) {
      std::vector<int32_t>& spare = sequence.spare[RingIndex(sequence, entry.rank)];
      ANNULUS_CHECK(spare.back() == entry.page) << "plan of another state";
      spare.pop_back();
      group.entries.push_back(entry);
      group.mapped_end = entry.first_position + limits.page_tokens;
    }
  }
  if (update.setup != nullptr) sequence.setup_sent = true;
}

// Pages that no later row can see go back to the sequence; the next plan tells the ranks.
void DropBehindWindows(const PlanLimits& limits, Sequence& sequence) {
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
      sequence.spare[RingIndex(sequence, entry.rank)].push_back(entry.page);
    }
    group.entries.erase(group.entries.begin(), group.entries.begin() + drop);
    group.pending_drop += static_cast<int32_t>(drop);
  }
}

}  // namespace

StepPlan PlanStep(const EngineState& state, const PlanLimits& limits, const ModePolicy& policy) {
  return Planner(state, limits, policy).Run();
}

void CommitStep(const StepPlan& plan, const PlanLimits& limits, EngineState& state) {
  ANNULUS_CHECK(plan.step == state.step) << "plan of another step";
  ++state.step;
  state.ended.clear();
  for (const SequenceUpdate& update : plan.updates) {
    for (const auto& sequence : state.running) {
      if (sequence->id == update.sequence) CommitTables(update, limits, *sequence);
    }
  }
  for (const PlanItem& item : plan.items) {
    for (const auto& sequence : state.running) {
      if (sequence->id == item.sequence) {
        sequence->computed = std::max(sequence->computed, item.end);
      }
    }
  }
  for (const auto& sequence : state.running) DropBehindWindows(limits, *sequence);
}

}  // namespace annulus
