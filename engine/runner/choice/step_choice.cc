// Attention policies in a step: which items choose their lists layer by layer, and the report of
// all items.
#include <algorithm>

#include "engine/runner/step/step_attention.h"
#include "engine/sparse/dilated.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Of the rows of an answer that choose their blocks, the first and each at a multiple of so many
// positions is sampled: that reads all its keys.
constexpr int32_t kAnswerSampling = 64;

// Whether lists are attended as they are, with no contract that may ask for more.
bool KnowsLists(const AttentionPolicy& policy, ChoiceKind kind) {
  return kind == ChoiceKind::kLists && policy.coverage == 0;
}

std::span<const SequencePart> PartsIn(const RankSequence& sequence, int layer) {
  if (sequence.attention.empty()) return {};
  return sequence.attention[layer];
}

}  // namespace

bool StepAttention::Chooses(std::span<const SequencePart> parts, const RingItem& item) const {
  if (parts.size() != 1) return parts.size() > 1;
  const AttentionPolicy& policy = *parts.front().policy;
  const ChoiceKind kind = HowToChoose(policy, item.sampled, item.begin, item.end);
  return kind != ChoiceKind::kNone && !KnowsLists(policy, kind);
}

// Whether an item's coverage is sampled although its blocks need no choice. Not with kernels that
// cannot sample.
bool StepAttention::Samples(std::span<const SequencePart> parts, const RingItem& item) const {
  if (parts.size() != 1 || item.sampled || state_.ops().block_scores == nullptr) return false;
  const AttentionPolicy& policy = *parts.front().policy;
  return TypeOf(policy.kind).branches != nullptr ||
         KnowsLists(policy, HowToChoose(policy, item.sampled, item.begin, item.end));
}

// The lists that a ring item's rows follow in a layer, if one policy knows them ahead.
void StepAttention::SetLists(size_t index, int layer) {
  RingItem& item = items_[index];
  item.pattern = nullptr;
  item.branches.clear();
  const std::span<const SequencePart> parts = PartsIn(sequence(index), layer);
  if (parts.size() != 1) return;
  const AttentionPolicy& policy = *parts.front().policy;
  if (!UsesPattern(policy, item.sampled, item.begin, item.end)) return;
  item.pattern = state_.parts.patterns->Get(
      policy, ShapeFor(policy, item.begin, item.end, model().page_shape.kv_heads));
  item.branches = DilatedBranches(policy);
}

// What a ring item's rows would see in a group without a window if no policy left anything out.
ItemShards StepAttention::AllPages(size_t index, int group) const {
  RingItem all = items_[index];
  all.pattern = nullptr;
  all.branches.clear();
  return BuildItemShards(all, sequence(index).groups[group], 0, model().page_shape.page_tokens,
                         state_.config.shards);
}

// What the first layer's lists leave out may be seen after all: by another layer with lists of its
// own, or because a contract falls back to more. States are reserved for all that there is.
void StepAttention::NoteAllPages(int group) {
  if (model().groups[group].window > 0) return;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].pattern == nullptr && items_[i].branches.empty()) continue;
    const ItemShards all = AllPages(i, group);
    RingAttention::Note(std::span(&all, 1), std::span(&items_[i], 1));
  }
}

// A window of the model is exact: policies leave such groups alone.
void StepAttention::ListChoosing(int layer, GroupStep& step) const {
  const int group = model().group_of_layer[layer];
  if (model().groups[group].window > 0) return;
  for (size_t i = 0; i < items_.size(); ++i) {
    const RingItem& item = items_[i];
    RankSequence& sequence = state_.sequences.at(plan_items_[i]->sequence);
    const std::span<const SequencePart> parts = PartsIn(sequence, layer);
    const bool sampled = Samples(parts, item);
    if (!sampled && !Chooses(parts, item)) continue;
    ChoosingItem choosing;
    choosing.item = i;
    choosing.sequence = plan_items_[i]->sequence;
    for (const SequencePart& part : parts) {
      ChoosingPart& chosen = choosing.parts.emplace_back();
      chosen.policy = part.policy;
      chosen.heads = part.heads;
      if (!UsesPattern(*part.policy, item.sampled, item.begin, item.end)) continue;
      chosen.pattern = state_.parts.patterns->Get(
          *part.policy, ShapeFor(*part.policy, item.begin, item.end, model().page_shape.kv_heads));
    }
    choosing.report_lists = sequence.report_lists;
    choosing.samples_answer = sequence.begins_answer || item.begin % kAnswerSampling == 0;
    choosing.candidates = AllPages(i, group);
    choosing.summaries = &sequence.summaries;
    choosing.summary_kinds = sequence.summary_kinds;
    if (!sequence.summary_pages.empty()) {
      choosing.summary_pages = sequence.summary_pages[group][item.index];
    }
    (sampled ? step.sampled : step.choosing).push_back(std::move(choosing));
  }
}

// Sequences whose layers differ have other lists in each.
void StepAttention::TakeUpLayer(int layer) {
  const int group = model().group_of_layer[layer];
  if (model().groups[group].window > 0) return;
  GroupStep& step = groups_[group];
  bool ruled = false;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!sequence(i).ruled) continue;
    ruled = true;
    SetLists(i, layer);
    step.shards[i] = BuildItemShards(items_[i], sequence(i).groups[group], 0,
                                     model().page_shape.page_tokens, state_.config.shards);
  }
  if (!ruled) return;
  PlanOf(layer).Clear();
  step.choosing.clear();
  step.sampled.clear();
  ListChoosing(layer, step);
}

absl::Status StepAttention::Choose(int layer, int64_t rows, const RingLayer& ring) {
  GroupStep& group = groups_[model().group_of_layer[layer]];
  if (ring.window > 0) return absl::OkStatus();
  CountPairs(layer, ring.items.size());
  ChoiceLayer choice;
  choice.tag = ring.tag;
  choice.layer = layer;
  choice.items = ring.items;
  choice.shards = std::span(group.shards).first(ring.items.size());
  choice.query = ring.query.row_range(0, rows);
  choice.page_data = [this, offset = ring.page_offset](int32_t page) {
    return state_.parts.pool->LayerPage(page, 0) + offset;
  };
  choice.sinks = state_.weights().layers[layer].host_sinks;
  if (!group.choosing.empty()) PlanOf(layer).Clear();
  ANNULUS_RETURN_IF_ERROR(state_.chooser.Run(choice, group.choosing, reports_));
  return state_.sampler.Run(choice, group.sampled, reports_);
}

// Of items under a policy whose lists, if any, are known before the layer.
void StepAttention::CountPairs(int layer, size_t items) {
  for (size_t i = 0; i < items; ++i) {
    const RingItem& item = items_[i];
    const std::span<const SequencePart> parts = PartsIn(sequence(i), layer);
    if (parts.empty() || item.own_rows() == 0 || Chooses(parts, item)) continue;
    const bool dilated = !item.branches.empty();
    LayerAttention report;
    report.sequence = plan_items_[i]->sequence;
    report.layer = layer;
    report.begin = item.begin;
    const std::span<const int32_t> rows = item.positions[item.index];
    if (dilated) {
      for (const int32_t row : rows) {
        report.pairs +=
            CountDilatedPairs(item.branches, model().attention(layer).heads, row, row + 1);
      }
    } else if (item.pattern != nullptr) {
      report.pairs = annulus::CountPairs(*item.pattern, rows);
    } else {
      for (const int32_t row : rows) report.pairs += DensePairs(row, row + 1);
    }
    if (sequence(i).report_lists) {
      report.rows.assign(rows.begin(), rows.end());
      if (!dilated && item.pattern != nullptr) report.lists = item.pattern;
      report.branches = item.branches;
    }
    reports_.push_back(std::move(report));
  }
}

void StepAttention::ListEvidence() {
  for (size_t i = 0; i < items_.size(); ++i) {
    const RankSequence& own = sequence(i);
    if (!items_[i].sampled || !own.evidence.has_value()) continue;
    EvidenceItem& item = evidence_.emplace_back();
    item.item = i;
    item.sequence = plan_items_[i]->sequence;
    item.terms = &*own.evidence;
    item.parts = EvidenceParts(own.evidence->ranges, EvidenceBlock(model().page_shape.page_tokens));
  }
}

// The layer's state must be final.
absl::Status StepAttention::AddEvidence(int layer, const RingLayer& ring) {
  if (evidence_.empty() || ring.window > 0) return absl::OkStatus();
  const int group = model().group_of_layer[layer];
  return state_.evidence.Run(
      {layer, ring, state_.shapes[layer], model().page_shape.page_tokens,
       [&](size_t item) -> std::span<const PageEntry> { return sequence(item).groups[group]; }},
      evidence_);
}

absl::Status StepAttention::LookOn(int layer, const RingLayer& ring) {
  if (ring.window > 0) return absl::OkStatus();
  for (size_t i = 0; i < ring.items.size(); ++i) {
    const RingItem& item = ring.items[i];
    if (item.sampled || item.own_rows() == 0) continue;
    std::vector<KvPageView> pages;
    for (const PageEntry& entry : sequence(i).groups[model().group_of_layer[layer]]) {
      const int32_t tokens =
          std::min(model().page_shape.page_tokens, item.end - entry.first_position);
      if (tokens <= 0) break;
      pages.push_back(
          {ring.page_data(entry.page) + ring.page_offset, entry.first_position, tokens});
    }
    ANNULUS_RETURN_IF_ERROR(state_.parts.observer->Observe(
        {layer, state_.config, state_.ops(), state_.stream(), item.positions[item.index],
         ring.query.row_range(item.first_row, item.own_rows()), pages}));
  }
  return absl::OkStatus();
}

}  // namespace annulus
