#include "engine/runner/step/step_attention.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/memory/align.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

const PageEntry& EntryOf(std::span<const PageEntry> entries, int32_t position) {
  const auto after = std::upper_bound(
      entries.begin(), entries.end(), position,
      [](int32_t value, const PageEntry& entry) { return value < entry.first_position; });
  ANNULUS_CHECK(after != entries.begin()) << "no page for position " << position;
  return *std::prev(after);
}

// What a plan's item is to a rank of the sequence's ring. `me`: the rank's place in that ring.
RingItem MakeRingItem(const PlanItem& plan, const RankSequence& sequence, int me,
                      int64_t first_row) {
  RingItem item;
  item.ring = sequence.ring;
  item.index = me;
  item.mode = plan.mode;
  item.sampled = plan.sampled;
  item.begin = plan.begin;
  item.end = plan.end;
  item.first_row = first_row;
  item.positions.resize(item.ring.size());
  for (const RowRun& run : plan.runs) {
    std::vector<int32_t>& positions = item.positions[IndexOf(item, run.rank)];
    for (int32_t p = 0; p < run.count; ++p) positions.push_back(run.first_position + p);
  }
  if (plan.sampled) {
    item.sampled_anchor = IndexOf(item, EntryOf(sequence.groups[0], plan.begin).rank);
  }
  return item;
}

}  // namespace

StepAttention::StepAttention(RankState& state, const StepPlan& plan, const StepRows& rows)
    : state_(state),
      rows_(rows),
      first_tag_(plan.step * static_cast<uint64_t>(state.model().layers())) {
  ListItems(plan);
  ListEvidence();
  for (size_t g = 0; g < model().groups.size(); ++g) {
    groups_.push_back(BuildGroup(static_cast<int>(g)));
    RingAttention::Note(groups_.back().shards, items_);
    NoteAllPages(static_cast<int>(g));
  }
}

void StepAttention::ListItems(const StepPlan& plan) {
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const PlanItem& item = plan.items[i];
    const RankSequence& sequence = state_.sequences.at(item.sequence);
    const auto me = std::find(sequence.ring.begin(), sequence.ring.end(), state_.parts.rank);
    if (me == sequence.ring.end()) continue;
    items_.push_back(MakeRingItem(item, sequence, static_cast<int>(me - sequence.ring.begin()),
                                  rows_.item_first[i]));
    plan_items_.push_back(&item);
    SetLists(items_.size() - 1, 0);
    if (NeedsLastLayer(item)) active_items_ = items_.size();
  }
}

StepAttention::GroupStep StepAttention::BuildGroup(int group) const {
  GroupStep step;
  const int32_t window = model().groups[group].window;
  for (size_t i = 0; i < items_.size(); ++i) {
    step.shards.push_back(BuildItemShards(items_[i], sequence(i).groups[group], window,
                                          model().page_shape.page_tokens, state_.config.shards));
  }
  ListChoosing(model().groups[group].layers.front(), step);
  ListAppends(group, step);
  return step;
}

// Where the own rows' keys and values go.
void StepAttention::ListAppends(int group, GroupStep& step) const {
  const auto rows = static_cast<size_t>(rows_.count());
  step.append_page.assign(rows, nullptr);
  step.layer_page.resize(rows);
  step.append_slot.assign(rows, 0);
  for (size_t i = 0; i < items_.size(); ++i) {
    const RingItem& item = items_[i];
    for (int64_t row = item.first_row; row < item.first_row + item.own_rows(); ++row) {
      const PageEntry& entry = EntryOf(sequence(i).groups[group], rows_.positions[row]);
      if (entry.rank != state_.parts.rank) continue;
      step.append_page[row] = state_.parts.pool->LayerPage(entry.page, 0);
      step.append_slot[row] = rows_.positions[row] - entry.first_position;
    }
  }
  for (int64_t row = 0; row < rows_.count(); ++row) {
    if (step.append_page[row] == nullptr) continue;
    if (!step.appends.empty() && step.appends.back().first + step.appends.back().count == row) {
      ++step.appends.back().count;
    } else {
      step.appends.push_back({row, 1});
    }
  }
}

// Bytes from the first layer's part of a page to that of `layer`.
size_t StepAttention::PageOffset(int layer) const {
  return AlignUp(state_.shapes[layer].layer_page_bytes) *
         static_cast<size_t>(model().index_in_group[layer]);
}

absl::Status StepAttention::Append(int layer) {
  GroupStep& group = GroupOf(layer);
  const size_t offset = PageOffset(layer);
  const AttentionShape& shape = model().attention(layer);
  for (const AppendRun& run : group.appends) {
    for (int64_t row = run.first; row < run.first + run.count; ++row) {
      group.layer_page[row] = group.append_page[row] + offset;
    }
    ANNULUS_RETURN_IF_ERROR(state_.ops().kv_append(
        state_.stream(),
        {state_.shapes[layer].shape,
         buffers_->Rows(LayerArray::kKey, run.first, run.count, shape.key_columns()),
         buffers_->Rows(LayerArray::kValue, run.first, run.count, shape.value_columns()),
         std::span(group.layer_page).subspan(run.first, run.count),
         std::span(group.append_slot).subspan(run.first, run.count)}));
  }
  return absl::OkStatus();
}

RingLayer StepAttention::MakeRingLayer(int layer, int64_t rows) {
  const int group = model().group_of_layer[layer];
  const size_t items = IsLean(layer) ? active_items_ : items_.size();
  const AttentionShape& shape = model().attention(layer);
  StepBuffers& b = *buffers_;
  const auto state = [&](std::span<float> o, std::span<float> lse, int64_t count) {
    return AttentionState{o.data(), lse.data(), count, shape.heads, shape.v_dim};
  };
  RingLayer ring;
  ring.tag = (first_tag_ + layer) << 16;
  ring.shape = &state_.shapes[layer];
  ring.window = model().groups[group].window;
  ring.items = std::span(items_).first(items);
  ring.shards = std::span(groups_[group].shards).first(items);
  ring.query = b.Rows(LayerArray::kQuery, 0, rows, shape.query_columns());
  ring.stores = Stores(layer);
  if (ring.stores) {
    ring.key = b.Rows(LayerArray::kKey, 0, rows_.count(), shape.key_columns());
    ring.value = b.Rows(LayerArray::kValue, 0, rows_.count(), shape.value_columns());
  }
  ring.page_data = [this](int32_t page) { return state_.parts.pool->LayerPage(page, 0); };
  ring.page_offset = PageOffset(layer);
  ring.state = state(b.of(LayerArray::kAttended), b.lse, b.sizes.rows);
  ring.served = state(b.served.o, b.served.lse, b.sizes.states.served);
  ring.served_columns = b.state_columns;
  ring.served_heads = b.state_heads;
  ring.kept = state(b.kept.o, b.kept.lse, b.sizes.states.kept);
  ring.slots = state_.parts.slots;
  return ring;
}

RingPlan& StepAttention::PlanOf(int layer) {
  GroupStep& group = GroupOf(layer);
  const bool fewer = IsLean(layer) && active_items_ < items_.size();
  if (Stores(layer)) return fewer ? group.lean_plan : group.plan;
  return fewer ? group.lean_reading : group.reading;
}

// Unless it has been laid out, for an earlier layer.
void StepAttention::LayOutFirst(int layer) {
  RingPlan& plan = PlanOf(layer);
  if (plan.laid_out() || !GroupOf(layer).choosing.empty()) return;
  state_.ring.LayOut(MakeRingLayer(layer, IsLean(layer) ? rows_.active : rows_.count()), plan);
}

// Before the first layer, so that no layer does it. Lists that are settled layer by layer are laid
// out in each: see Run.
void StepAttention::LayOut(StepBuffers& buffers) {
  buffers_ = &buffers;
  for (int layer = 0; layer < model().layers(); ++layer) LayOutFirst(layer);
}

absl::Status StepAttention::Run(int layer, int64_t rows) {
  if (Stores(layer)) ANNULUS_RETURN_IF_ERROR(Append(layer));
  TakeUpLayer(layer);
  const RingLayer ring = MakeRingLayer(layer, rows);
  if (state_.parts.observer != nullptr) ANNULUS_RETURN_IF_ERROR(LookOn(layer, ring));
  ANNULUS_RETURN_IF_ERROR(Choose(layer, rows, ring));
  ANNULUS_RETURN_IF_ERROR(state_.ring.Run(ring, PlanOf(layer)));
  const DeviceVector& sinks = state_.weights().layers[layer].sinks;
  if (!sinks.empty() && rows > 0) {
    AttentionState own = ring.state;
    own.rows = rows;
    ANNULUS_RETURN_IF_ERROR(state_.ops().merge_sink(state_.stream(), {own, sinks.data()}));
  }
  return AddEvidence(layer, ring);
}

}  // namespace annulus
