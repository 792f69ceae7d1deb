// Attention policies in a step: which items settle their lists layer by layer, and what is
// reported of all.
#include "engine/runner/step_run.h"
#include "kernels/base/status_macros.h"

namespace annulus {

bool StepRun::Chooses(const AttentionPolicy& policy, const RingItem& item) const {
  const ChoiceKind kind = HowToChoose(policy, item.sampled, item.begin, item.end);
  // Lists that need no scores do without a sample where the kernels cannot take one.
  if (kind == ChoiceKind::kLists && policy.coverage == 0) return ops().block_scores != nullptr;
  return kind != ChoiceKind::kNone;
}

// A window of the model is exact: policies leave such groups alone.
void StepRun::ListChoosing(int group, GroupStep& step) const {
  if (model().groups[group].window > 0) return;
  for (size_t i = 0; i < ring_items_.size(); ++i) {
    const RingItem& item = ring_items_[i];
    RankSequence& sequence = rank_.sequences_.at(ring_plan_[i]->sequence);
    if (sequence.attention == nullptr) continue;
    if (!Chooses(*sequence.attention, item)) continue;
    ChoosingItem choosing;
    choosing.item = i;
    choosing.sequence = ring_plan_[i]->sequence;
    choosing.policy = sequence.attention;
    choosing.report_lists = sequence.report_lists;
    RingItem all = item;
    all.pattern = nullptr;
    choosing.candidates =
        BuildItemShards(all, sequence.groups[group], 0, model().page_shape.page_tokens);
    choosing.summaries = &sequence.summaries;
    step.choosing.push_back(std::move(choosing));
  }
}

absl::Status StepRun::Choose(int layer, int64_t rows, RingLayer& ring) {
  GroupStep& group = groups_[model().group_of_layer[layer]];
  if (ring.window > 0) return absl::OkStatus();
  CountPairs(layer, ring.items.size());
  ChoiceLayer choice;
  choice.tag = ring.tag;
  choice.layer = layer;
  choice.items = ring.items;
  choice.shards = std::span(group.shards).first(ring.items.size());
  choice.query = ring.query.row_range(0, rows);
  choice.page_data = ring.page_data;
  choice.sinks = model().weights.layers[layer].host_sinks;
  return rank_.chooser_.Run(choice, group.choosing, attention_);
}

// Of items under a policy whose lists, if any, are known before the layer.
void StepRun::CountPairs(int layer, size_t items) {
  for (size_t i = 0; i < items; ++i) {
    const RingItem& item = ring_items_[i];
    const RankSequence& sequence = rank_.sequences_.at(ring_plan_[i]->sequence);
    const AttentionPolicy* const policy = sequence.attention.get();
    if (policy == nullptr || item.own_rows() == 0) continue;
    if (policy->kind == PolicyKind::kDilated) continue;  // counted by tokens
    if (Chooses(*policy, item)) continue;
    LayerAttention report;
    report.sequence = ring_plan_[i]->sequence;
    report.layer = layer;
    report.begin = item.begin;
    const std::span<const int32_t> rows = item.positions[item.index];
    if (item.pattern != nullptr) {
      report.pairs = annulus::CountPairs(*item.pattern, rows);
    } else {
      for (const int32_t row : rows) report.pairs += DensePairs(row, row + 1);
    }
    if (sequence.report_lists) {
      report.rows.assign(rows.begin(), rows.end());
      report.lists = item.pattern;
    }
    attention_.push_back(std::move(report));
  }
}

}  // namespace annulus
