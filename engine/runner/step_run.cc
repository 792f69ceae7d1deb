#include "engine/runner/step_run.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Rows of logits computed at once: bounds the buffer where the vocabulary is large.
constexpr int64_t kLogitsRows = 8;

const PageEntry& EntryOf(std::span<const PageEntry> entries, int32_t position) {
  const auto after = std::upper_bound(
      entries.begin(), entries.end(), position,
      [](int32_t value, const PageEntry& entry) { return value < entry.first_position; });
  ANNULUS_CHECK(after != entries.begin()) << "no page for position " << position;
  return *std::prev(after);
}

}  // namespace

size_t StepArenaBytes(const RankModel& model, int rows, int ranks) {
  const ModelConfig& config = model.config;
  const auto floats = [](int64_t count) {
    return StepArena::BytesFor<float>(static_cast<size_t>(count));
  };
  const auto state = [&](int64_t n) {
    return floats(n * model.query_columns()) + floats(n * config.heads);
  };
  const int64_t r = rows;
  const int64_t pairs = static_cast<int64_t>(model.inverse_frequencies.size());
  return 2 * floats(r * config.hidden_size) + floats(r * model.query_columns()) +
         2 * floats(r * model.kv_columns()) + 2 * floats(r * config.intermediate_size) +
         2 * floats(r * pairs) + 2 * state(r) + state(r * (ranks - 1)) +
         floats(kLogitsRows * config.vocabulary) + floats(kLogitsRows * config.hidden_size) +
         StepArena::BytesFor<Candidate>(static_cast<size_t>(config.vocabulary));
}

absl::Status StepRun::Run(RankResult& result) {
  ListRows();
  ListRingItems();
  for (size_t g = 0; g < model().groups.size(); ++g) {
    groups_.push_back(BuildGroup(static_cast<int>(g)));
  }
  ANNULUS_RETURN_IF_ERROR(TakeBuffers(RingAttention::ServedRows(ring_items_)));
  ANNULUS_RETURN_IF_ERROR(Embed());
  for (int layer = 0; layer < model().layers(); ++layer) ANNULUS_RETURN_IF_ERROR(Layer(layer));
  return Head(result);
}

void StepRun::ListRows() {
  for (const PlanItem& item : plan_.items) {
    item_first_.push_back(static_cast<int64_t>(row_position_.size()));
    for (const RowRun& run : item.runs) {
      if (run.rank != rank_.parts_.rank) continue;
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
    const RankSequence& sequence = rank_.sequences_.at(plan.sequence);
    const auto me = std::find(sequence.ring.begin(), sequence.ring.end(), rank_.parts_.rank);
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
    if (sequence.attention != nullptr) {
      item.pattern = rank_.parts_.patterns->Get(
          *sequence.attention,
          ShapeFor(*sequence.attention, item.begin, item.end, model().config.kv_heads));
    }
    ring_items_.push_back(std::move(item));
    ring_plan_.push_back(&plan);
    if (NeedsLastLayer(plan)) active_items_ = ring_items_.size();
  }
}

StepRun::GroupStep StepRun::BuildGroup(int group) const {
  GroupStep step;
  const int32_t window = model().groups[group].window;
  for (size_t i = 0; i < ring_items_.size(); ++i) {
    const RankSequence& sequence = rank_.sequences_.at(ring_plan_[i]->sequence);
    step.shards.push_back(BuildItemShards(ring_items_[i], sequence.groups[group], window,
                                          model().page_shape.page_tokens));
  }
  step.append_page.assign(row_position_.size(), -1);
  step.append_slot.assign(row_position_.size(), 0);
  for (size_t i = 0; i < ring_items_.size(); ++i) {
    const RingItem& item = ring_items_[i];
    const RankSequence& sequence = rank_.sequences_.at(ring_plan_[i]->sequence);
    for (int64_t row = item.first_row; row < item.first_row + item.own_rows(); ++row) {
      const PageEntry& entry = EntryOf(sequence.groups[group], row_position_[row]);
      if (entry.rank != rank_.parts_.rank) continue;
      step.append_page[row] = entry.page;
      step.append_slot[row] = row_position_[row] - entry.first_position;
    }
  }
  const int64_t rows = static_cast<int64_t>(row_position_.size());
  for (int64_t row = 0; row < rows; ++row) {
    if (step.append_page[row] < 0) continue;
    if (!step.appends.empty() && step.appends.back().first + step.appends.back().count == row) {
      ++step.appends.back().count;
    } else {
      step.appends.push_back({row, 1});
    }
  }
  return step;
}

absl::StatusOr<MatrixView> StepRun::TakeMatrix(int64_t rows, int64_t cols) {
  ANNULUS_ASSIGN_OR_RETURN(const std::span<float> data,
                           rank_.parts_.arena->Take<float>(static_cast<size_t>(rows * cols)));
  return MatrixView{data.data(), rows, cols, cols};
}

absl::StatusOr<AttentionState> StepRun::TakeState(int64_t rows) {
  ANNULUS_ASSIGN_OR_RETURN(const MatrixView o, TakeMatrix(rows, model().query_columns()));
  ANNULUS_ASSIGN_OR_RETURN(const MatrixView lse, TakeMatrix(rows, model().config.heads));
  return AttentionState{o.data, lse.data, rows, model().config.heads, model().config.head_dim};
}

absl::Status StepRun::TakeBuffers(int64_t served_rows) {
  const ModelConfig& config = model().config;
  const int64_t rows = static_cast<int64_t>(row_position_.size());
  const int64_t pairs = static_cast<int64_t>(model().inverse_frequencies.size());
  Buffers& b = buffers_;
  ANNULUS_ASSIGN_OR_RETURN(b.residual, TakeMatrix(rows, config.hidden_size));
  ANNULUS_ASSIGN_OR_RETURN(b.normed, TakeMatrix(rows, config.hidden_size));
  ANNULUS_ASSIGN_OR_RETURN(b.query, TakeMatrix(rows, model().query_columns()));
  ANNULUS_ASSIGN_OR_RETURN(b.key, TakeMatrix(rows, model().kv_columns()));
  ANNULUS_ASSIGN_OR_RETURN(b.value, TakeMatrix(rows, model().kv_columns()));
  ANNULUS_ASSIGN_OR_RETURN(b.gate, TakeMatrix(rows, config.intermediate_size));
  ANNULUS_ASSIGN_OR_RETURN(b.up, TakeMatrix(rows, config.intermediate_size));
  ANNULUS_ASSIGN_OR_RETURN(b.cosine, TakeMatrix(rows, pairs));
  ANNULUS_ASSIGN_OR_RETURN(b.sine, TakeMatrix(rows, pairs));
  ANNULUS_ASSIGN_OR_RETURN(b.state, TakeState(rows));
  ANNULUS_ASSIGN_OR_RETURN(b.scratch, TakeState(rows));
  ANNULUS_ASSIGN_OR_RETURN(b.served, TakeState(served_rows));
  return absl::OkStatus();
}

absl::Status StepRun::Linear(const LinearWeights& weights, ConstMatrixView input, MatrixView output,
                             bool accumulate) {
  if (input.rows == 0) return absl::OkStatus();
  return ops().linear(stream(), {input, &weights.weight, weights.bias.data(), output, accumulate});
}

absl::Status StepRun::Norm(const DeviceVector& weight, ConstMatrixView input, MatrixView output) {
  if (input.rows == 0) return absl::OkStatus();
  return ops().rms_norm(stream(), {input, weight.data(), model().config.rms_norm_eps, output});
}

absl::Status StepRun::Embed() {
  if (row_token_.empty()) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(
      ops().embed(stream(), {&model().weights.embedding, row_token_, buffers_.residual}));
  return ops().rope_table(
      stream(), {row_position_, model().inverse_frequencies, 1.0f, buffers_.cosine, buffers_.sine});
}

// In the last layer only rows whose logits are wanted need queries and what follows; all rows need
// keys and values, which later steps attend.
absl::Status StepRun::Layer(int layer) {
  const LayerWeights& weights = model().weights.layers[layer];
  const ModelConfig& config = model().config;
  const int64_t all = static_cast<int64_t>(row_position_.size());
  const int64_t rows = layer + 1 == model().layers() ? active_rows_ : all;
  Buffers& b = buffers_;
  rank_.parts_.heartbeat->Beat();
  ANNULUS_RETURN_IF_ERROR(Norm(weights.attention_norm, b.residual, b.normed));
  ANNULUS_RETURN_IF_ERROR(Linear(weights.key, b.normed, b.key));
  ANNULUS_RETURN_IF_ERROR(Linear(weights.value, b.normed, b.value));
  ANNULUS_RETURN_IF_ERROR(
      Linear(weights.query, b.normed.row_range(0, rows), b.query.row_range(0, rows)));
  const auto rotate = [&](MatrixView values, int heads, int64_t count) -> absl::Status {
    if (count == 0) return absl::OkStatus();
    return ops().rope(stream(), {values.row_range(0, count), heads, config.head_dim,
                                 b.cosine.row_range(0, count), b.sine.row_range(0, count)});
  };
  ANNULUS_RETURN_IF_ERROR(rotate(b.key, config.kv_heads, all));
  ANNULUS_RETURN_IF_ERROR(rotate(b.query, config.heads, rows));
  ANNULUS_RETURN_IF_ERROR(Append(layer));
  ANNULUS_RETURN_IF_ERROR(Attend(layer, rows));
  const ConstMatrixView attended{b.state.o, rows, model().query_columns(), model().query_columns()};
  const MatrixView residual = b.residual.row_range(0, rows);
  ANNULUS_RETURN_IF_ERROR(Linear(weights.output, attended, residual, true));
  return Mlp(layer, rows);
}

absl::Status StepRun::Mlp(int layer, int64_t rows) {
  if (rows == 0) return absl::OkStatus();
  const LayerWeights& weights = model().weights.layers[layer];
  const MatrixView residual = buffers_.residual.row_range(0, rows);
  const MatrixView normed = buffers_.normed.row_range(0, rows);
  const MatrixView gate = buffers_.gate.row_range(0, rows);
  const MatrixView up = buffers_.up.row_range(0, rows);
  ANNULUS_RETURN_IF_ERROR(Norm(weights.mlp_norm, residual, normed));
  ANNULUS_RETURN_IF_ERROR(Linear(weights.gate, normed, gate));
  ANNULUS_RETURN_IF_ERROR(Linear(weights.up, normed, up));
  ANNULUS_RETURN_IF_ERROR(ops().silu_mul(stream(), {gate, up, gate}));
  return Linear(weights.down, gate, residual, true);
}

absl::Status StepRun::Append(int layer) {
  const GroupStep& group = groups_[model().group_of_layer[layer]];
  std::vector<std::byte*> pages;
  for (const AppendRun& run : group.appends) {
    pages.clear();
    for (int64_t row = run.first; row < run.first + run.count; ++row) {
      pages.push_back(
          rank_.parts_.pool->LayerPage(group.append_page[row], model().index_in_group[layer]));
    }
    ANNULUS_RETURN_IF_ERROR(
        ops().kv_append(stream(), {model().page_shape, buffers_.key.row_range(run.first, run.count),
                                   buffers_.value.row_range(run.first, run.count), pages,
                                   std::span(group.append_slot).subspan(run.first, run.count)}));
  }
  return absl::OkStatus();
}

absl::Status StepRun::Attend(int layer, int64_t rows) {
  const int group = model().group_of_layer[layer];
  const size_t items = layer + 1 == model().layers() ? active_items_ : ring_items_.size();
  RingLayer ring;
  ring.tag = (plan_.step * static_cast<uint64_t>(model().layers()) + layer) << 16;
  ring.window = model().groups[group].window;
  ring.items = std::span(ring_items_).first(items);
  ring.shards = std::span(groups_[group].shards).first(items);
  ring.query = buffers_.query.row_range(0, rows);
  ring.key = buffers_.key;
  ring.value = buffers_.value;
  ring.page_data = [this, layer](int32_t page) {
    return rank_.parts_.pool->LayerPage(page, model().index_in_group[layer]);
  };
  ring.state = buffers_.state;
  ring.scratch = buffers_.scratch;
  ring.served = buffers_.served;
  return rank_.ring_.Run(ring);
}

absl::Status StepRun::Head(RankResult& result) {
  struct Wanted {
    const PlanItem* item;
    int64_t row;
  };
  std::vector<Wanted> wanted;
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const PlanItem& item = plan_.items[i];
    const int64_t end = i + 1 < plan_.items.size() ? item_first_[i + 1]
                                                   : static_cast<int64_t>(row_position_.size());
    for (int64_t row = item_first_[i]; row < end; ++row) {
      const bool listed = std::binary_search(item.logits_positions.begin(),
                                             item.logits_positions.end(), row_position_[row]);
      if (item.sampled || listed) wanted.push_back({&item, row});
    }
  }
  const int64_t hidden = model().config.hidden_size;
  const int64_t vocabulary = model().config.vocabulary;
  ANNULUS_ASSIGN_OR_RETURN(MatrixView normed, TakeMatrix(kLogitsRows, hidden));
  ANNULUS_ASSIGN_OR_RETURN(MatrixView logits, TakeMatrix(kLogitsRows, vocabulary));
  ANNULUS_ASSIGN_OR_RETURN(const std::span<Candidate> workspace,
                           rank_.parts_.arena->Take<Candidate>(vocabulary));
  for (size_t first = 0; first < wanted.size(); first += kLogitsRows) {
    const size_t count = std::min<size_t>(kLogitsRows, wanted.size() - first);
    for (size_t n = 0; n < count; ++n) {
      ANNULUS_RETURN_IF_ERROR(Norm(model().weights.final_norm,
                                   buffers_.residual.row_range(wanted[first + n].row, 1),
                                   normed.row_range(n, 1)));
    }
    ANNULUS_RETURN_IF_ERROR(
        ops().linear(stream(), {normed.row_range(0, count), &model().weights.head(), nullptr,
                                logits.row_range(0, count), false}));
    ANNULUS_RETURN_IF_ERROR(stream().Synchronize());
    for (size_t n = 0; n < count; ++n) {
      const Wanted& w = wanted[first + n];
      ANNULUS_RETURN_IF_ERROR(UseLogits(*w.item, row_position_[w.row],
                                        {logits.row(n), static_cast<size_t>(vocabulary)}, workspace,
                                        result));
    }
  }
  return absl::OkStatus();
}

absl::Status StepRun::UseLogits(const PlanItem& item, int32_t position,
                                std::span<const float> logits, std::span<Candidate> workspace,
                                RankResult& result) {
  if (!item.sampled) {
    result.logits.push_back({item.sequence, position, {logits.begin(), logits.end()}});
    return absl::OkStatus();
  }
  RankSequence& sequence = rank_.sequences_.at(item.sequence);
  ANNULUS_CHECK(sequence.sampler != nullptr) << "a sampled item before its setup";
  absl::StatusOr<SampleResult> sampled = sequence.sampler->Sample(logits, position + 1, workspace);
  if (!sampled.ok()) {
    result.tokens.push_back({item.sequence, -1, false, std::nullopt, sampled.status()});
    return absl::OkStatus();
  }
  sequence.sampler->Observe(sampled->token);
  result.tokens.push_back({item.sequence, sampled->token,
                           sequence.sampler->EndsText(sampled->token), std::move(sampled->logprob),
                           absl::OkStatus()});
  return absl::OkStatus();
}

}  // namespace annulus
