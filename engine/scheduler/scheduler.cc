#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/scheduler/sequence_index.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

constexpr uint32_t kFirstVersion = 1;
constexpr int32_t kToItsEnd = std::numeric_limits<int32_t>::max();  // of the prompt, or lost rows

SequenceTerms TermsOf(const Sequence& sequence) {
  SequenceTerms terms;
  terms.version = kFirstVersion;
  terms.ring = sequence.ring;
  terms.home = sequence.home;
  if (sequence.attention != nullptr) terms.attention = *sequence.attention;
  if (sequence.summaries != nullptr) terms.summaries = *sequence.summaries;
  terms.report_lists = sequence.report_lists;
  terms.rope_length = sequence.rope_length;
  if (sequence.evidence != nullptr) terms.evidence = *sequence.evidence;
  return terms;
}

SamplingSetup SetupOf(const Sequence& sequence) {
  SamplingSetup setup = *sequence.setup;
  const auto answer = sequence.tokens.begin() + sequence.prompt_length - sequence.answered;
  setup.generated.assign(answer, sequence.tokens.end());
  return setup;
}

// Builds one plan.
class Planner {
 public:
  Planner(const EngineState& state, const PageBook& pages, const PlanLimits& limits,
          const ModePolicy& policy, std::optional<std::span<const PrefillTurn>> turns)
      : state_(state),
        pages_(pages),
        limits_(limits),
        policy_(policy),
        turns_(turns),
        prefill_rows_(limits.ranks, 0),
        sampled_rows_(limits.ranks, 0),
        draft_rows_(limits.ranks, 0) {}

  StepPlan Run() {
    plan_.step = state_.step;
    plan_.ended = state_.ended;
    const size_t count = state_.running.size();
    GiveRows([this](const Sequence& sequence, int32_t rows) { PlanDecode(sequence, rows); });
    if (turns_.has_value()) {
      PlanTurns();
    } else {
      for (size_t i = 0; i < count; ++i) {
        const Sequence& sequence = *state_.running[(i + state_.step) % count];
        if (!sequence.paused && !sequence.apart && sequence.prefills() &&
            !sequence.suspended.has_value()) {
          PlanPrefill(sequence, kToItsEnd);
        }
      }
    }
    // Sampled items first: the last layer then works on a prefix of the rows.
    std::stable_partition(plan_.items.begin(), plan_.items.end(), NeedsLastLayer);
    return std::move(plan_);
  }

  StepPlan RunAlone(const PrefillTurn& turn) {
    plan_.step = state_.step;
    plan_.ended = state_.ended;
    const Sequence& sequence = SequenceIndex(state_).at(turn.sequence);
    if (sequence.paused || sequence.suspended.has_value()) return std::move(plan_);
    if (sequence.prefills()) {
      PlanPrefill(sequence, turn.end);
    } else if (!sequence.needs_pages()) {
      PlanDecode(sequence, 1 + DraftRows(sequence));
    }
    std::stable_partition(plan_.items.begin(), plan_.items.end(), NeedsLastLayer);
    return std::move(plan_);
  }

  std::vector<StreamRows> RunStreams() {
    std::vector<StreamRows> streams;
    GiveRows([&streams](const Sequence& sequence, int32_t rows) {
      streams.push_back({.position = sequence.computed, .rows = rows});
    });
    return streams;
  }

  std::optional<StepPlan> RunAfter(const StepPlan& running) {
    plan_.step = state_.step;
    plan_.ended = state_.ended;
    const auto active = std::count_if(state_.running.begin(), state_.running.end(),
                                      [](const auto& sequence) { return !sequence->paused; });
    if (running.stretch.has_value() || running.items.empty() ||
        active != std::ssize(running.items)) {
      return std::nullopt;
    }
    const SequenceIndex sequences(state_);
    for (const PlanItem& item : running.items) {
      const Sequence& sequence = sequences.at(item.sequence);
      if (!item.sampled || item.end - item.begin > 1 || sequence.paused) return std::nullopt;
      if (item.end >= sequence.reserved) return std::nullopt;
      AddUpdate(sequence, item.end + 1, true);
      AddSampled(sequence, item.end, {kLastSampled});
    }
    return std::move(plan_);
  }

  StepPlan RunStretch(const StretchTurn& turn) {
    plan_.step = state_.step;
    plan_.ended = state_.ended;
    const Sequence& sequence = SequenceIndex(state_).at(turn.sequence);
    if (sequence.suspended.has_value()) {
      plan_.items = sequence.suspended->items;
      plan_.stretch = {sequence.suspended->layers, turn.end_layer};
    } else {
      PlanPrefill(sequence, turn.end);
      std::stable_partition(plan_.items.begin(), plan_.items.end(), NeedsLastLayer);
      plan_.stretch = {0, turn.end_layer};
    }
    plan_.stretch->ends_chunk = turn.end_layer == limits_.layers;
    return std::move(plan_);
  }

 private:
  int PrefillRoom(int rank) const { return limits_.prefill_rows_per_rank - prefill_rows_[rank]; }
  bool SampledRoom(int rank) const { return sampled_rows_[rank] < limits_.sampled_rows_per_rank; }

  // Gives each decoding sequence its rows, in turn, and calls `use` with it and how many it got.
  // Leaves out those that wait.
  template <typename Use>
  void GiveRows(const Use& use) {
    const size_t count = state_.running.size();
    for (size_t i = 0; i < count; ++i) {
      const Sequence& sequence = *state_.running[(i + state_.step) % count];
      if (sequence.paused || sequence.apart) continue;
      if (sequence.prefills() || sequence.needs_pages()) continue;
      if (!SampledRoom(sequence.home)) continue;
      const int32_t drafted = DraftRows(sequence);
      ++sampled_rows_[sequence.home];
      draft_rows_[sequence.home] += drafted;
      use(sequence, 1 + drafted);
    }
  }

  void PlanDecode(const Sequence& sequence, int32_t rows) {
    AddUpdate(sequence, sequence.computed + rows, true);
    std::vector<int32_t> tokens = {sequence.tokens[sequence.computed]};
    tokens.insert(tokens.end(), sequence.draft.begin(), sequence.draft.begin() + rows - 1);
    AddSampled(sequence, sequence.computed, std::move(tokens));
  }

  // How much of its draft the step can try: all rows lie in one page.
  int32_t DraftRows(const Sequence& sequence) const {
    const int32_t page = limits_.page_tokens;
    const int32_t page_end = (sequence.computed / page + 1) * page;
    const auto drafted = static_cast<int32_t>(sequence.draft.size());
    return std::min({drafted, kMostSampledRows - 1, page_end - sequence.computed - 1,
                     limits_.draft_rows_per_rank - draft_rows_[sequence.home]});
  }

  // The largest chunk end that leaves every ring rank within its rows; `computed` when none does.
  int32_t ChunkEnd(const Sequence& sequence) const {
    const int32_t last = sequence.prompt_length - 1;
    if (RestFits(sequence, last)) {
      if (SampledRoom(sequence.home)) return sequence.prompt_length;
      return last;
    }
    const int32_t end = FittingEnd(sequence, {sequence.computed, last});
    // Whole stripes are the most even: in each, every rank of the ring has its share.
    const int32_t stripe = RoundTokens(static_cast<int>(sequence.ring.size()), limits_);
    const int32_t whole = end / stripe * stripe;
    return whole > sequence.computed ? whole : end;
  }

  // How many of the rows fit: pages in turn until some rank's rows are full.
  int32_t FittingEnd(const Sequence& sequence, const RowRange& wanted) const {
    std::vector<int> rows(limits_.ranks, 0);
    const int32_t page = limits_.page_tokens;
    int32_t end = wanted.begin;
    while (end < wanted.end) {
      const int32_t next = std::min<int32_t>(wanted.end, (end / page + 1) * page);
      const int32_t rank = RankOf(sequence, end);
      if (rows[rank] + next - end > PrefillRoom(rank)) break;
      rows[rank] += next - end;
      end = next;
    }
    return end;
  }

  // Whether all rows of [computed, last) can run in this step.
  bool RestFits(const Sequence& sequence, int32_t last) const {
    int64_t room = 0;
    for (const int32_t rank : sequence.ring) room += PrefillRoom(rank);
    if (last - sequence.computed > room) return false;
    std::vector<int> rows(limits_.ranks, 0);
    for (const RowRun& run : Runs(sequence, sequence.computed, last)) {
      rows[run.rank] += run.count;
      if (rows[run.rank] > PrefillRoom(run.rank)) return false;
    }
    return true;
  }

  // The rank that holds the page of `position`, or will once AddUpdate has placed it. Groups place
  // a page of the same positions on the same rank, and every group still has the pages from
  // `computed` on, so the first one answers for all.
  int32_t RankOf(const Sequence& sequence, int32_t position) const {
    const GroupTable& group = sequence.groups.front();
    const int32_t page = limits_.page_tokens;
    if (position >= group.mapped_end) {
      const int degree = static_cast<int>(sequence.ring.size());
      return sequence.ring[PlaceOnRing(position / page * page, page, degree, limits_.shards)];
    }
    const auto after = std::upper_bound(
        group.entries.begin(), group.entries.end(), position,
        [](int32_t value, const PageEntry& entry) { return value < entry.first_position; });
    ANNULUS_CHECK(after != group.entries.begin()) << "no page for position " << position;
    return std::prev(after)->rank;
  }

  // Rows run where their page is.
  std::vector<RowRun> Runs(const Sequence& sequence, int32_t begin, int32_t end) const {
    std::vector<RowRun> runs;
    const int32_t page = limits_.page_tokens;
    for (int32_t position = begin; position < end;) {
      const int32_t next = std::min<int32_t>(end, (position / page + 1) * page);
      const int32_t rank = RankOf(sequence, position);
      if (!runs.empty() && runs.back().rank == rank) {
        runs.back().count += next - position;
      } else {
        runs.push_back({rank, position, next - position});
      }
      position = next;
    }
    return runs;
  }

  void PlanTurns() {
    const SequenceIndex sequences(state_);
    for (const PrefillTurn& turn : *turns_) {
      const Sequence& sequence = sequences.at(turn.sequence);
      ANNULUS_CHECK(sequence.prefills()) << "no prompt of that name";
      PlanPrefill(sequence, turn.end);
    }
  }

  void PlanPrefill(const Sequence& sequence, int32_t most_end) {
    if (sequence.lost.has_value()) return PlanRepair(sequence, most_end);
    const int32_t end = std::min(ChunkEnd(sequence), most_end);
    if (end <= sequence.computed) return;
    const bool last = end == sequence.prompt_length;
    AddUpdate(sequence, end, last);
    const int32_t prefill_end = last ? end - 1 : end;
    if (prefill_end > sequence.computed) AddPrefill(sequence, {sequence.computed, prefill_end});
    if (!last) return;
    ++sampled_rows_[sequence.home];
    AddSampled(sequence, end - 1, {sequence.tokens[end - 1]});
  }

  // Whole pages, or up to the last lost row. At most one sequence, since others may share its
  // pages.
  void PlanRepair(const Sequence& sequence, int32_t most_end) {
    if (repairs_) return;
    const RowRange& lost = *sequence.lost;
    int32_t end = std::min(most_end, FittingEnd(sequence, lost));
    if (end < lost.end) end = end / limits_.page_tokens * limits_.page_tokens;
    if (end <= lost.begin) return;
    repairs_ = true;
    AddUpdate(sequence, end, /*samples=*/false);
    AddPrefill(sequence, {lost.begin, end});
  }

  void AddPrefill(const Sequence& sequence, const RowRange& rows) {
    PlanItem item;
    item.sequence = sequence.id;
    item.begin = rows.begin;
    item.end = rows.end;
    item.tokens.assign(sequence.tokens.begin() + item.begin, sequence.tokens.begin() + item.end);
    if (sequence.prompt_logprobs.has_value() && !sequence.lost.has_value()) {
      item.score = {*sequence.prompt_logprobs, sequence.tokens[item.end]};
    }
    item.runs = Runs(sequence, item.begin, item.end);
    for (const RowRun& run : item.runs) prefill_rows_[run.rank] += run.count;
    item.mode = policy_.mode != RingMode::kAuto
                    ? policy_.mode
                    : ChooseRingMode(StripedWork(item.end - item.begin, item.begin,
                                                 static_cast<int>(sequence.ring.size()),
                                                 limits_.page_tokens, limits_.shards),
                                     policy_.geometry, policy_.rates);
    if (item.mode == RingMode::kPassKv && sequence.ring.size() > 1) {
      const int64_t pages = MostPagesOfARank(sequence, plan_.updates.back());
      if (pages > policy_.visiting_pages - visiting_pages_) {
        item.mode = RingMode::kPassQ;
      } else {
        visiting_pages_ += pages;
      }
    }
    plan_.items.push_back(std::move(item));
  }

  // Of one cache group, with the pages that `update` adds: as many may visit a peer in a ring step.
  static int64_t MostPagesOfARank(const Sequence& sequence, const SequenceUpdate& update) {
    int64_t most = 0;
    for (size_t g = 0; g < sequence.groups.size(); ++g) {
      std::map<int32_t, int64_t> pages;  // by rank
      const auto count = [&](const std::vector<PageEntry>& entries) {
        for (const PageEntry& entry : entries) most = std::max(most, ++pages[entry.rank]);
      };
      count(update.tables[g].append);
      // A sequence that is announced only now has all its entries in the update.
      if (sequence.announced) count(sequence.groups[g].entries);
    }
    return most;
  }

  // `tokens`: of the rows from `begin` on, first the sequence's last token, then its draft.
  void AddSampled(const Sequence& sequence, int32_t begin, std::vector<int32_t> tokens) {
    PlanItem item;
    item.sequence = sequence.id;
    item.begin = begin;
    item.end = begin + static_cast<int32_t>(tokens.size());
    item.tokens = std::move(tokens);
    item.mode = RingMode::kPassQ;
    item.runs = {{sequence.home, begin, item.end - begin}};
    item.sampled = true;
    plan_.items.push_back(std::move(item));
  }

  // Places the pages that positions up to `end` need.
  void AddUpdate(const Sequence& sequence, int32_t end, bool samples) {
    SequenceUpdate update;
    update.sequence = sequence.id;
    update.version = kFirstVersion;
    if (!sequence.announced) update.terms = TermsOf(sequence);
    if (samples && !sequence.setup_sent) update.setup = SetupOf(sequence);
    std::vector<size_t> taken(sequence.ring.size(), 0);
    const int degree = static_cast<int>(sequence.ring.size());
    for (const GroupTable& group : sequence.groups) {
      TableDelta delta;
      delta.drop_front = group.pending_drop;
      if (!sequence.announced) delta.append = group.entries;
      for (int32_t first = group.mapped_end; first < end; first += limits_.page_tokens) {
        const int index = PlaceOnRing(first, limits_.page_tokens, degree, limits_.shards);
        const int32_t rank = sequence.ring[index];
        const std::span<const int32_t> reserve = pages_.reserve(sequence.owner, rank);
        ANNULUS_CHECK(taken[index] < reserve.size()) << "admission gave too few pages";
        const int32_t page = reserve[reserve.size() - 1 - taken[index]++];
        delta.append.push_back({rank, page, first});
      }
      update.tables.push_back(std::move(delta));
    }
    plan_.updates.push_back(std::move(update));
  }

  const EngineState& state_;
  const PageBook& pages_;
  const PlanLimits& limits_;
  const ModePolicy& policy_;
  const std::optional<std::span<const PrefillTurn>> turns_;
  std::vector<int> prefill_rows_;  // [rank] given so far
  std::vector<int> sampled_rows_;
  std::vector<int> draft_rows_;
  int64_t visiting_pages_ = 0;  // in a ring step, of the items so far
  bool repairs_ = false;        // whether a sequence's lost rows are computed
  StepPlan plan_;
};

}  // namespace

StepPlan PlanStep(const EngineState& state, const PageBook& pages, const PlanLimits& limits,
                  const ModePolicy& policy, std::optional<std::span<const PrefillTurn>> turns) {
  return Planner(state, pages, limits, policy, turns).Run();
}

StepPlan PlanAlone(const EngineState& state, const PageBook& pages, const PlanLimits& limits,
                   const ModePolicy& policy, const PrefillTurn& turn) {
  return Planner(state, pages, limits, policy, std::nullopt).RunAlone(turn);
}

std::vector<StreamRows> RowsOfStreams(const EngineState& state, const PageBook& pages,
                                      const PlanLimits& limits) {
  return Planner(state, pages, limits, ModePolicy(), std::nullopt).RunStreams();
}

StepPlan PlanStretch(const EngineState& state, const PageBook& pages, const PlanLimits& limits,
                     const ModePolicy& policy, const StretchTurn& turn) {
  PlanLimits own = limits;
  own.prefill_rows_per_rank = limits.suspended_rows_per_rank;
  return Planner(state, pages, own, policy, std::nullopt).RunStretch(turn);
}

std::optional<StepPlan> PlanSuccessor(const StepPlan& running, const EngineState& state,
                                      const PageBook& pages, const PlanLimits& limits) {
  return Planner(state, pages, limits, ModePolicy(), std::nullopt).RunAfter(running);
}

}  // namespace annulus
