#include "engine/runner/plan_check.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

template <typename... Parts>
absl::Status Unfit(SequenceId sequence, const Parts&... parts) {
  return absl::InvalidArgumentError(
      absl::StrCat("the plan does not fit sequence ", sequence, ": ", parts...));
}

template <typename... Parts>
absl::Status WrongStretch(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("the plan runs a part of the layers: ", parts...));
}

bool IsMember(const RankSequence& sequence, int32_t rank) {
  return std::find(sequence.ring.begin(), sequence.ring.end(), rank) != sequence.ring.end();
}

// Null: no page of the table holds the position.
const PageEntry* FindEntry(std::span<const PageEntry> entries, int64_t position,
                           int32_t page_tokens) {
  const auto after = std::upper_bound(
      entries.begin(), entries.end(), position,
      [](int64_t value, const PageEntry& entry) { return value < entry.first_position; });
  if (after == entries.begin()) return nullptr;
  const PageEntry& entry = *std::prev(after);
  return position - entry.first_position < page_tokens ? &entry : nullptr;
}

// The rank of every group's page of the position, which is one.
absl::StatusOr<int32_t> HolderOf(const PlanItem& item, const RankSequence& sequence,
                                 int64_t position, int32_t page_tokens) {
  const PageEntry* first = nullptr;
  for (const std::vector<PageEntry>& entries : sequence.groups) {
    const PageEntry* const entry = FindEntry(entries, position, page_tokens);
    if (entry == nullptr) return Unfit(item.sequence, "no page for position ", position);
    if (first == nullptr) first = entry;
    if (entry->rank != first->rank) {
      return Unfit(item.sequence, "position ", position, " has pages on ranks ", first->rank,
                   " and ", entry->rank);
    }
  }
  return first->rank;
}

absl::Status CheckSampled(const PlanItem& item, const RankSequence& sequence, int32_t rank) {
  if (item.runs.size() != 1 || item.runs[0].rank != sequence.home) {
    return Unfit(item.sequence, "a row to sample that does not run on its home rank ",
                 sequence.home);
  }
  if (item.end - item.begin > kMostSampledRows) {
    return Unfit(item.sequence, item.end - item.begin, " rows to sample; at most ",
                 kMostSampledRows, " go together");
  }
  if (rank == sequence.home && sequence.sampler == nullptr) {
    return Unfit(item.sequence, "a row to sample before its setup");
  }
  if (rank == sequence.home && item.tokens[0] == kLastSampled &&
      !sequence.last_sampled.has_value()) {
    return Unfit(item.sequence, "a row for the last sampled token, and none was sampled");
  }
  return absl::OkStatus();
}

// Whether the sequence's pages for summaries, if it has any, are those of its ring, and have room
// for every page of `rank` that is complete at the item's end.
absl::Status CheckSummaries(const PlanItem& item, const RankSequence& sequence,
                            const RankModel& model, int32_t rank) {
  const auto& all = sequence.summary_pages;
  for (size_t g = 0; g < model.groups.size() && !all.empty(); ++g) {
    if (model.groups[g].window > 0) continue;
    if (g < all.size() && all[g].size() == sequence.ring.size()) continue;
    return Unfit(item.sequence, "pages for summaries that not every rank of its ring has");
  }
  if (!sequence.summary_kinds.any()) return absl::OkStatus();
  const KvPageShape& shape = model.page_shape;
  const int64_t each =
      PagesSummarised(sequence.summary_kinds, shape, model.ops->kv_page_bytes(shape));
  const auto me = std::find(sequence.ring.begin(), sequence.ring.end(), rank);
  const size_t index = static_cast<size_t>(me - sequence.ring.begin());
  if (index == sequence.ring.size()) return absl::OkStatus();
  for (size_t g = 0; g < model.groups.size(); ++g) {
    if (model.groups[g].window > 0) continue;
    const int64_t complete = std::count_if(
        sequence.groups[g].begin(), sequence.groups[g].end(), [&](const PageEntry& entry) {
          return entry.rank == rank && entry.first_position <= item.end - shape.page_tokens;
        });
    if (all.empty() || complete > each * std::ssize(all[g][index])) {
      return Unfit(item.sequence, "too few pages for the summaries of ", complete, " pages");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckEvidence(const SequenceTerms& terms, const RankModel& model) {
  if (!terms.evidence.has_value()) return absl::OkStatus();
  if (model.ops->block_scores == nullptr || terms.evidence->heads.empty()) {
    return absl::InvalidArgumentError("the plan wants evidence that the kernels cannot give");
  }
  for (const LayerHead& head : terms.evidence->heads) {
    const bool exists = head.layer >= 0 && head.layer < model.layers() && head.head >= 0 &&
                        head.head < model.attention(head.layer).heads;
    if (exists && model.groups[model.group_of_layer[head.layer]].window == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("the plan wants evidence of head ", head.head,
                                                   " in layer ", head.layer,
                                                   ", which is none with full attention"));
  }
  return absl::OkStatus();
}

absl::Status CheckTables(const SequenceUpdate& update, const RankSequence& sequence,
                         const RankModel& model) {
  if (update.tables.size() != model.groups.size()) {
    return Unfit(update.sequence, update.tables.size(), " page tables; the model has ",
                 model.groups.size());
  }
  for (size_t g = 0; g < update.tables.size(); ++g) {
    const TableDelta& delta = update.tables[g];
    const std::span<const PageEntry> known =
        sequence.groups.empty() ? std::span<const PageEntry>() : sequence.groups[g];
    if (delta.drop_front < 0 || delta.drop_front > std::ssize(known)) {
      return Unfit(update.sequence, delta.drop_front, " pages are dropped of ", known.size());
    }
    if (delta.drop_front > 0 && model.groups[g].window == 0) {
      return Unfit(update.sequence, "pages of a group without a window are dropped");
    }
    if (delta.append.empty()) continue;
    const int64_t first = delta.append.front().first_position;
    const bool follows = known.empty() ? first == 0 || model.groups[g].window > 0
                                       : first == int64_t{known.back().first_position} +
                                                      model.page_shape.page_tokens;
    if (!follows) return Unfit(update.sequence, "pages before position ", first, " are missing");
    for (const PageEntry& entry : delta.append) {
      if (IsMember(sequence, entry.rank)) continue;
      return Unfit(update.sequence, "rank ", entry.rank, " has a page and is not of the ring");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckItem(const PlanItem& item, const RankSequence& sequence, const RankModel& model,
                       int32_t rank) {
  const int32_t page_tokens = model.page_shape.page_tokens;
  if (sequence.groups.empty()) return Unfit(item.sequence, "it has no pages");
  ANNULUS_RETURN_IF_ERROR(CheckSummaries(item, sequence, model, rank));
  if (item.sampled) {
    ANNULUS_RETURN_IF_ERROR(CheckSampled(item, sequence, rank));
    if (item.begin / page_tokens != (item.end - 1) / page_tokens) {
      return Unfit(item.sequence, "rows to sample in several pages");
    }
    if (sequence.evidence.has_value() && !sequence.evidence->ranges.empty() &&
        sequence.evidence->ranges.back().end > item.begin + 1) {
      return Unfit(item.sequence, "evidence of position ", sequence.evidence->ranges.back().end - 1,
                   " for row ", item.begin);
    }
    return HolderOf(item, sequence, item.begin, page_tokens).status();
  }
  for (const RowRun& run : item.runs) {
    const int64_t end = int64_t{run.first_position} + run.count;
    for (int64_t position = run.first_position; position < end;) {
      ANNULUS_ASSIGN_OR_RETURN(const int32_t holder,
                               HolderOf(item, sequence, position, page_tokens));
      if (holder != run.rank) {
        return Unfit(item.sequence, "rank ", run.rank, " is to compute position ", position,
                     ", whose page rank ", holder, " holds");
      }
      position = (position / page_tokens + 1) * page_tokens;
    }
  }
  return absl::OkStatus();
}

namespace {

// Whether the stretch's own numbers and rows fit each other.
absl::Status CheckStretchAlone(const StepPlan& plan, int layers) {
  const Stretch& stretch = *plan.stretch;
  if (stretch.first_layer < 0 || stretch.first_layer >= stretch.end_layer ||
      stretch.end_layer > layers || stretch.ends_chunk != (stretch.end_layer == layers)) {
    return WrongStretch("from layer ", stretch.first_layer, " to ", stretch.end_layer,
                        stretch.ends_chunk ? ", the last," : "", " of a model with ", layers);
  }
  if (plan.items.empty()) return WrongStretch("it has no rows");
  const SequenceId sequence = plan.items[0].sequence;
  for (const PlanItem& item : plan.items) {
    if (item.sequence != sequence) {
      return WrongStretch("rows of sequences ", sequence, " and ", item.sequence,
                          "; one sequence is allowed");
    }
    if (item.sampled && item.end - item.begin > 1) return WrongStretch("it has guessed rows");
  }
  const auto is_other = [&](const SequenceUpdate& update) { return update.sequence != sequence; };
  if (std::any_of(plan.updates.begin(), plan.updates.end(), is_other)) {
    return WrongStretch("it updates other sequences than ", sequence);
  }
  return absl::OkStatus();
}

// Whether the plan leaves the suspended chunk as it is.
absl::Status CheckUntouched(const StepPlan& plan, const SuspendedChunk& suspended) {
  const SequenceId sequence = suspended.items[0].sequence;
  const auto names = [&](const auto& each) { return each.sequence == sequence; };
  if (std::none_of(plan.items.begin(), plan.items.end(), names) &&
      std::none_of(plan.updates.begin(), plan.updates.end(), names)) {
    return absl::OkStatus();
  }
  return Unfit(sequence, "a chunk of it is suspended after layer ", suspended.layers);
}

}  // namespace

absl::Status CheckStretch(const StepPlan& plan, const SuspendedChunk* suspended, int layers) {
  if (!plan.stretch.has_value()) {
    return suspended == nullptr ? absl::OkStatus() : CheckUntouched(plan, *suspended);
  }
  ANNULUS_RETURN_IF_ERROR(CheckStretchAlone(plan, layers));
  const Stretch& stretch = *plan.stretch;
  if (stretch.first_layer == 0) {
    return suspended == nullptr ? absl::OkStatus()
                                : WrongStretch("a chunk begins, and one of sequence ",
                                               suspended->items[0].sequence, " is suspended");
  }
  if (suspended == nullptr) return WrongStretch("no chunk is suspended");
  if (stretch.first_layer != suspended->layers) {
    return WrongStretch("it goes on at layer ", stretch.first_layer, "; ", suspended->layers,
                        " have run");
  }
  if (plan.items != suspended->items || !plan.updates.empty()) {
    return WrongStretch("its rows are not those of the suspended chunk");
  }
  return absl::OkStatus();
}

}  // namespace annulus
