#include "engine/runner/step_run.h"

#include <algorithm>
#include <utility>

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

}  // namespace

absl::Status StepRun::Run(RankResult& result) {
  ListRows();
  ListRingItems();
  for (size_t g = 0; g < model().groups.size(); ++g) {
    groups_.push_back(BuildGroup(static_cast<int>(g)));
    RingAttention::Note(groups_.back().shards, ring_items_);
    NoteAllPages(static_cast<int>(g));
  }
  ANNULUS_RETURN_IF_ERROR(TakeBuffers(RingAttention::Reserve(ring_items_)));
  LayOutAttention();
  ANNULUS_RETURN_IF_ERROR(BeginGraph());
  if (stretch_.first_layer == 0) {
    ANNULUS_RETURN_IF_ERROR(Embed());
  } else {
    attention_ = std::move(state_.suspended->attention);
  }
  for (size_t rope = 0; rope < buffers_.angles.size(); ++rope) {
    ANNULUS_RETURN_IF_ERROR(FillAngles(rope));
  }
  for (int layer = stretch_.first_layer; layer < stretch_.end_layer; ++layer) {
    ANNULUS_RETURN_IF_ERROR(Layer(layer));
  }
  if (stretch_.ends_chunk) {
    result.attention = std::move(attention_);
    ANNULUS_RETURN_IF_ERROR(Head(result));
    if (plan_.stretch.has_value()) state_.suspended.reset();
  } else {
    Suspend();
  }
  ANNULUS_RETURN_IF_ERROR(LaunchGraph());
  // Pages and arenas may be given to others once the step has ended.
  ANNULUS_RETURN_IF_ERROR(stream().Synchronize());
  return state_.ring.CountSeconds();
}

void StepRun::Suspend() {
  if (!state_.suspended.has_value()) state_.suspended.emplace().chunk.items = plan_.items;
  state_.suspended->chunk.layers = stretch_.end_layer;
  state_.suspended->residual = taken_->of(LayerArray::kResidual);
  state_.suspended->attention = std::move(attention_);
}

absl::Status StepRun::TakePhase(StepBuffers::Phase phase) {
  return taken_->Take(phase, *state_.parts.arena, *state_.parts.host_arena);
}

// What a suspended chunk's layers pass on stays where it is from the first stretch to the last.
absl::Status StepRun::TakeResidual() {
  std::span<float>& residual = taken_->of(LayerArray::kResidual);
  if (stretch_.first_layer > 0) {
    residual = state_.suspended->residual;
    return absl::OkStatus();
  }
  StepArena* const arena = state_.parts.suspended;
  if (arena == nullptr) {
    return absl::InvalidArgumentError(
        "the plan suspends a chunk between layers, and this rank has no memory for that");
  }
  arena->Reset();
  const int64_t count = taken_->values[static_cast<size_t>(LayerArray::kResidual)];
  ANNULUS_ASSIGN_OR_RETURN(residual, arena->Take<float>(static_cast<size_t>(count)));
  return absl::OkStatus();
}

// All rows of an array that has the same columns in every layer.
MatrixView StepRun::WholeArray(LayerArray array) {
  const int64_t columns = model().graph.front().columns_of(array);
  const auto count = static_cast<int64_t>(taken_->of(array).size());
  return {taken_->of(array).data(), count / columns, columns, columns};
}

absl::Status StepRun::TakeBuffers(const StateRows& states) {
  const ModelConfig& config = model().config;
  const auto rows = static_cast<int64_t>(row_position_.size());
  taken_.emplace(StepSizes{.model = model(),
                           .rows = rows,
                           .states = states,
                           .wide_rows = wide_rows(),
                           .in_place = state_.parts.host_arena == state_.parts.arena,
                           .suspends = plan_.stretch.has_value()});
  if (plan_.stretch.has_value()) ANNULUS_RETURN_IF_ERROR(TakeResidual());
  ANNULUS_RETURN_IF_ERROR(TakePhase(StepBuffers::Phase::kStep));
  Buffers& b = buffers_;
  b.residual = WholeArray(LayerArray::kResidual);
  b.normed = WholeArray(LayerArray::kNormed);
  b.query = WholeArray(LayerArray::kQuery);
  b.key = WholeArray(LayerArray::kKey);
  b.value = WholeArray(LayerArray::kValue);
  for (size_t rope = 0; rope < config.ropes.size(); ++rope) {
    const auto& [cosine, sine] = taken_->angles[rope];
    const int64_t pairs = config.ropes[rope].pairs;
    b.angles.push_back({DenseRows(cosine, 0, rows, pairs), DenseRows(sine, 0, rows, pairs)});
  }
  const auto state = [&](std::span<float> o, std::span<float> lse) -> AttentionState {
    return {o.data(), lse.data(), static_cast<int64_t>(lse.size()) / config.heads, config.heads,
            config.head_dim};
  };
  b.state = state(taken_->of(LayerArray::kAttended), taken_->lse);
  b.served = state(taken_->served.o, taken_->served.lse);
  b.kept = state(taken_->kept.o, taken_->kept.lse);
  if (config.experts.count == 0) return absl::OkStatus();
  static_cast<StepBuffers::Experts&>(experts_) = taken_->experts;
  const int64_t hidden = config.hidden_size;
  const auto choices = static_cast<int64_t>(taken_->of(LayerArray::kExpertOutput).size()) / hidden;
  experts_.input = taken_->Rows(LayerArray::kExpertInput, 0, rows, hidden);
  experts_.output = taken_->Rows(LayerArray::kExpertOutput, 0, choices, hidden);
  experts_.logits = taken_->Rows(LayerArray::kRouterLogits, 0, rows, config.experts.count);
  return absl::OkStatus();
}

absl::Status StepRun::TakeGated() {
  ANNULUS_RETURN_IF_ERROR(TakePhase(StepBuffers::Phase::kBlock));
  buffers_.gate.data = taken_->of(LayerArray::kGate).data();
  buffers_.up.data = taken_->of(LayerArray::kUp).data();
  return absl::OkStatus();
}

// Steps that decode are short and much like each other. With rows of prompts among them, what
// launching costs is lost in what they compute.
absl::Status StepRun::BeginGraph() {
  if (!state_.parts.graphs || plan_.items.empty() || plan_.stretch.has_value())
    return absl::OkStatus();
  for (const PlanItem& item : plan_.items) {
    if (!item.sampled) return absl::OkStatus();
  }
  ANNULUS_ASSIGN_OR_RETURN(graph_, stream().BeginGraph());
  return absl::OkStatus();
}

// Called where the host first needs what the step computes, and at its end.
absl::Status StepRun::LaunchGraph() {
  const std::unique_ptr<StepGraph> graph = std::move(graph_);
  return graph == nullptr ? absl::OkStatus() : graph->Launch();
}

void StepRun::ListRows() {
  for (const PlanItem& item : plan_.items) {
    item_first_.push_back(static_cast<int64_t>(row_position_.size()));
    for (const RowRun& run : item.runs) {
      if (run.rank != state_.parts.rank) continue;
      for (int32_t p = run.first_position; p < run.first_position + run.count; ++p) {
        row_position_.push_back(p);
        row_token_.push_back(item.tokens[p - item.begin]);
      }
    }
    if (NeedsLastLayer(item)) active_rows_ = static_cast<int64_t>(row_position_.size());
  }
}

void StepRun::ListRingItems() {
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const PlanItem& plan = plan_.items[i];
    const RankSequence& sequence = state_.sequences.at(plan.sequence);
    const auto me = std::find(sequence.ring.begin(), sequence.ring.end(), state_.parts.rank);
    if (me == sequence.ring.end()) continue;
    RingItem item;
    item.ring = sequence.ring;
    item.index = static_cast<int>(me - sequence.ring.begin());
    item.mode = plan.mode;
    item.sampled = plan.sampled;
    item.begin = plan.begin;
    item.end = plan.end;
    item.first_row = item_first_[i];
    item.positions.resize(item.ring.size());
    const auto index_of = [&](int32_t rank) {
      return std::find(item.ring.begin(), item.ring.end(), rank) - item.ring.begin();
    };
    for (const RowRun& run : plan.runs) {
      std::vector<int32_t>& positions = item.positions[index_of(run.rank)];
      for (int32_t p = 0; p < run.count; ++p) positions.push_back(run.first_position + p);
    }
    if (plan.sampled) {
      item.sampled_anchor =
          static_cast<int>(index_of(EntryOf(sequence.groups[0], plan.begin).rank));
    }
    ring_items_.push_back(std::move(item));
    ring_plan_.push_back(&plan);
    SetLists(ring_items_.size() - 1, 0);
    if (NeedsLastLayer(plan)) active_items_ = ring_items_.size();
  }
}

StepRun::GroupStep StepRun::BuildGroup(int group) const {
  GroupStep step;
  const int32_t window = model().groups[group].window;
  for (size_t i = 0; i < ring_items_.size(); ++i) {
    const RankSequence& sequence = state_.sequences.at(ring_plan_[i]->sequence);
    step.shards.push_back(BuildItemShards(ring_items_[i], sequence.groups[group], window,
                                          model().page_shape.page_tokens, shards()));
  }
  ListChoosing(model().groups[group].layers.front(), step);
  step.append_page.assign(row_position_.size(), nullptr);
  step.layer_page.resize(row_position_.size());
  step.append_slot.assign(row_position_.size(), 0);
  for (size_t i = 0; i < ring_items_.size(); ++i) {
    const RingItem& item = ring_items_[i];
    const RankSequence& sequence = state_.sequences.at(ring_plan_[i]->sequence);
    for (int64_t row = item.first_row; row < item.first_row + item.own_rows(); ++row) {
      const PageEntry& entry = EntryOf(sequence.groups[group], row_position_[row]);
      if (entry.rank != state_.parts.rank) continue;
      step.append_page[row] = state_.parts.pool->LayerPage(entry.page, 0);
      step.append_slot[row] = row_position_[row] - entry.first_position;
    }
  }
  const int64_t rows = static_cast<int64_t>(row_position_.size());
  for (int64_t row = 0; row < rows; ++row) {
    if (step.append_page[row] == nullptr) continue;
    if (!step.appends.empty() && step.appends.back().first + step.appends.back().count == row) {
      ++step.appends.back().count;
    } else {
      step.appends.push_back({row, 1});
    }
  }
  return step;
}

}  // namespace annulus
