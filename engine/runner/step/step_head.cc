#include "engine/runner/step/step_head.h"

#include <algorithm>
#include <utility>

#include "engine/sampling/logprobs.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::Status StepHead::Run(RankResult& result) {
  const std::vector<Row> wanted = ListRows();
  ANNULUS_RETURN_IF_ERROR(
      buffers_.Take(StepBuffers::Phase::kHead, *state_.parts.arena, *state_.parts.host_arena));
  for (size_t first = 0; first < wanted.size(); first += kLogitsRows) {
    state_.parts.heartbeat->Beat();
    const size_t count = std::min<size_t>(kLogitsRows, wanted.size() - first);
    const std::span<const Row> rows = std::span(wanted).subspan(first, count);
    ANNULUS_RETURN_IF_ERROR(ComputeLogits(rows));
    ANNULUS_RETURN_IF_ERROR(SampleOrCopy(rows));
    ANNULUS_RETURN_IF_ERROR(launch_());
    ANNULUS_RETURN_IF_ERROR(state_.stream().Synchronize());
    for (size_t n = 0; n < count; ++n) UseRow(rows[n], n, result);
  }
  return absl::OkStatus();
}

std::vector<StepHead::Row> StepHead::ListRows() const {
  std::vector<Row> wanted;
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const PlanItem& item = plan_.items[i];
    for (int64_t row = rows_.item_first[i]; row < rows_.item_end(i); ++row) {
      const bool listed = std::binary_search(item.logits_positions.begin(),
                                             item.logits_positions.end(), rows_.positions[row]);
      if (!item.sampled && !listed && !item.score.has_value()) continue;
      wanted.push_back({&item, row, ChosenOnDevice(item)});
    }
  }
  return wanted;
}

Sampler& StepHead::SamplerOf(const PlanItem& item) const {
  const RankSequence& sequence = state_.sequences.at(item.sequence);
  ANNULUS_CHECK(sequence.sampler != nullptr) << "a sampled item before its setup";
  return *sequence.sampler;
}

// Tokens are chosen where the logits are. The host does it where it reads them in place, and where
// a request asks for log-probabilities: then it needs a copy of the row.
bool StepHead::ChosenOnDevice(const PlanItem& item) const {
  if (buffers_.sizes.in_place || state_.ops().sample == nullptr || !item.sampled) return false;
  const Sampler& sampler = SamplerOf(item);
  // Rows behind the first are chosen before it is known what the first gives.
  const bool several = item.end - item.begin > 1;
  return !sampler.wants_logits() && !(several && sampler.depends_on_answer());
}

// Logits of some of the kLogitsRows rows.
MatrixView StepHead::Logits(size_t first, size_t count) const {
  return DenseRows(buffers_.head.logits, static_cast<int64_t>(first), static_cast<int64_t>(count),
                   state_.model().config.vocabulary);
}

// The same as the host reads them.
std::span<float> StepHead::SeenLogits(size_t first, size_t count) const {
  const StepBuffers::Head& b = buffers_.head;
  const auto vocabulary = static_cast<size_t>(state_.model().config.vocabulary);
  const std::span<float> all = buffers_.sizes.in_place ? b.logits : b.seen;
  return all.subspan(first * vocabulary, count * vocabulary);
}

// Rows that lie side by side share a call; in a step that decodes that is all of them.
absl::Status StepHead::NormResiduals(std::span<const Row> rows, MatrixView normed) {
  const ModelConfig& config = state_.model().config;
  const ModelWeights& weights = state_.weights();
  const auto count = static_cast<int64_t>(rows.size());
  for (int64_t first = 0, end = 0; first < count; first = end) {
    do {
      ++end;
    } while (end < count && rows[end].row == rows[end - 1].row + 1);
    const MatrixView residual =
        buffers_.Rows(LayerArray::kResidual, rows[first].row, end - first, config.hidden_size);
    ANNULUS_RETURN_IF_ERROR(state_.ops().norm(
        state_.stream(),
        {residual, weights.final_norm.data(), config.norm, normed.row_range(first, end - first),
         false, weights.final_norm_bias.data()}));
  }
  return absl::OkStatus();
}

absl::Status StepHead::ComputeLogits(std::span<const Row> rows) {
  const ModelConfig& config = state_.model().config;
  const ModelWeights& weights = state_.weights();
  const MatrixView normed =
      DenseRows(buffers_.head.normed, 0, static_cast<int64_t>(rows.size()), config.hidden_size);
  ANNULUS_RETURN_IF_ERROR(config.streams.used() ? NormStreams(rows, normed)
                                                : NormResiduals(rows, normed));
  const MatrixView logits = Logits(0, rows.size());
  ANNULUS_RETURN_IF_ERROR(
      state_.ops().linear(state_.stream(), {normed, &weights.head(), nullptr, logits}));
  if (config.logits_scale != 1) {
    ANNULUS_RETURN_IF_ERROR(state_.ops().scale(state_.stream(), {logits, config.logits_scale}));
  }
  if (config.logits_soft_cap <= 0) return absl::OkStatus();
  return state_.ops().soft_cap(state_.stream(), {logits, config.logits_soft_cap});
}

// Runs of rows with the same way: the device chooses their tokens, or the host gets their logits.
absl::Status StepHead::SampleOrCopy(std::span<const Row> rows) {
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    std::vector<SampleRow> sampled;
    for (; end < rows.size() && rows[end].on_device == rows[begin].on_device; ++end) {
      if (!rows[end].on_device) continue;
      if (std::ssize(sampled) == kSampledRows) break;
      sampled.push_back(SamplerOf(*rows[end].item).RowAt(rows_.positions[rows[end].row] + 1));
    }
    const MatrixView logits = Logits(begin, end - begin);
    if (!sampled.empty()) {
      ANNULUS_RETURN_IF_ERROR(state_.ops().sample(
          state_.stream(), {logits, sampled, buffers_.head.tokens.data() + begin}));
    } else if (!buffers_.sizes.in_place) {
      const std::span<float> seen = SeenLogits(begin, end - begin);
      ANNULUS_RETURN_IF_ERROR(launch_());
      ANNULUS_RETURN_IF_ERROR(
          state_.parts.backend->Copy(state_.stream(), seen.data(), logits.data, seen.size_bytes()));
    }
  }
  return absl::OkStatus();
}

void StepHead::UsePromptRow(const PlanItem& item, int32_t position, std::span<const float> logits,
                            RankResult& result) {
  if (item.score.has_value()) {
    const bool last = position + 1 == item.end;
    const int32_t next = last ? item.score->next_token : item.tokens[position + 1 - item.begin];
    result.scored.push_back(
        {item.sequence, position, LogprobOf(logits, next, item.score->alternatives)});
  }
  if (!std::binary_search(item.logits_positions.begin(), item.logits_positions.end(), position)) {
    return;
  }
  result.logits.push_back({item.sequence, position, {logits.begin(), logits.end()}});
}

void StepHead::UseRow(const Row& row, size_t index, RankResult& result) {
  const PlanItem& item = *row.item;
  const int32_t position = rows_.positions[row.row];
  const std::span<const float> logits = SeenLogits(index, 1);
  if (!item.sampled) return UsePromptRow(item, position, logits, result);
  // A guessed row counts if the row before it gave the token that it holds.
  if (position > item.begin && row.row != next_row_) return;
  next_row_ = -1;
  Sampler& sampler = SamplerOf(item);
  std::optional<int32_t>& last = state_.sequences.at(item.sequence).last_sampled;
  last = 0;
  absl::StatusOr<SampleResult> sampled =
      row.on_device ? sampler.ResultOf(buffers_.head.tokens[index], position + 1)
                    : sampler.Sample(logits, position + 1, buffers_.head.workspace);
  if (!sampled.ok()) {
    result.tokens.push_back({item.sequence, -1, false, std::nullopt, sampled.status()});
    return;
  }
  last = sampled->token;
  sampler.Observe(sampled->token);
  const bool ends_text = sampler.EndsText(sampled->token);
  const bool guessed = position + 1 < item.end &&
                       sampled->token == item.tokens[position + 1 - item.begin] && !ends_text;
  if (guessed) next_row_ = row.row + 1;
  result.tokens.push_back({item.sequence, sampled->token, ends_text, std::move(sampled->logprob),
                           absl::OkStatus(), SharesOf(item, position)});
}

std::vector<EvidenceShare> StepHead::SharesOf(const PlanItem& item, int32_t position) const {
  for (const EvidenceItem& each : evidence_) {
    if (each.sequence == item.sequence) {
      return each.SharesOf(static_cast<size_t>(position - item.begin));
    }
  }
  return {};
}

}  // namespace annulus
