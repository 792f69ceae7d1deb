// The end of a step: logits of the rows that want them, and sampling.
#include <algorithm>
#include <utility>

#include "engine/runner/step_run.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::Status StepRun::Head(RankResult& result) {
  const std::vector<HeadRow> wanted = ListHeadRows();
  ANNULUS_ASSIGN_OR_RETURN(const HeadBuffers buffers, TakeHeadBuffers());
  for (size_t first = 0; first < wanted.size(); first += kLogitsRows) {
    const size_t count = std::min<size_t>(kLogitsRows, wanted.size() - first);
    const std::span<const HeadRow> rows = std::span(wanted).subspan(first, count);
    ANNULUS_RETURN_IF_ERROR(HeadLogits(rows, buffers));
    ANNULUS_RETURN_IF_ERROR(SampleOrCopy(rows, buffers));
    ANNULUS_RETURN_IF_ERROR(LaunchGraph());
    ANNULUS_RETURN_IF_ERROR(stream().Synchronize());
    for (size_t n = 0; n < count; ++n) UseRow(rows[n], n, buffers, result);
  }
  return absl::OkStatus();
}

std::vector<StepRun::HeadRow> StepRun::ListHeadRows() const {
  std::vector<HeadRow> wanted;
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const PlanItem& item = plan_.items[i];
    const int64_t end = i + 1 < plan_.items.size() ? item_first_[i + 1]
                                                   : static_cast<int64_t>(row_position_.size());
    for (int64_t row = item_first_[i]; row < end; ++row) {
      const bool listed = std::binary_search(item.logits_positions.begin(),
                                             item.logits_positions.end(), row_position_[row]);
      if (!item.sampled && !listed) continue;
      wanted.push_back({&item, row, ChosenOnDevice(item)});
    }
  }
  return wanted;
}

Sampler& StepRun::SamplerOf(const PlanItem& item) const {
  const RankSequence& sequence = state_.sequences.at(item.sequence);
  ANNULUS_CHECK(sequence.sampler != nullptr) << "a sampled item before its setup";
  return *sequence.sampler;
}

// Tokens are chosen where the logits are. The host does it where it reads them in place, and where
// a request asks for log-probabilities: then it needs a copy of the row.
bool StepRun::ChosenOnDevice(const PlanItem& item) const {
  const bool in_place = state_.parts.host_arena == state_.parts.arena;
  if (in_place || ops().sample == nullptr || !item.sampled) return false;
  const Sampler& sampler = SamplerOf(item);
  // Rows behind the first are chosen before it is known what the first gives.
  const bool several = item.end - item.begin > 1;
  return !sampler.wants_logits() && !(several && sampler.depends_on_answer());
}

absl::StatusOr<StepRun::HeadBuffers> StepRun::TakeHeadBuffers() {
  ANNULUS_RETURN_IF_ERROR(TakePhase(StepBuffers::Phase::kHead));
  const StepBuffers::Head& head = taken_->head;
  return HeadBuffers{DenseRows(head.normed, 0, kLogitsRows, model().config.hidden_size),
                     DenseRows(head.logits, 0, kLogitsRows, model().config.vocabulary),
                     taken_->sizes.in_place ? head.logits : head.seen, head.tokens, head.workspace};
}

absl::Status StepRun::HeadLogits(std::span<const HeadRow> rows, const HeadBuffers& buffers) {
  const auto count = static_cast<int64_t>(rows.size());
  // Rows that lie side by side share a call; in a step that decodes that is all of them.
  for (int64_t first = 0, end = 0; first < count; first = end) {
    do {
      ++end;
    } while (end < count && rows[end].row == rows[end - 1].row + 1);
    ANNULUS_RETURN_IF_ERROR(Norm(own_weights().final_norm,
                                 buffers_.residual.row_range(rows[first].row, end - first),
                                 buffers.normed.row_range(first, end - first)));
  }
  const MatrixView logits = buffers.logits.row_range(0, count);
  ANNULUS_RETURN_IF_ERROR(ops().linear(stream(), {buffers.normed.row_range(0, count),
                                                  &own_weights().head(), nullptr, logits, false}));
  if (model().config.logits_soft_cap <= 0) return absl::OkStatus();
  return ops().soft_cap(stream(), {logits, model().config.logits_soft_cap});
}

// Runs of rows with the same way: the device chooses their tokens, or the host gets their logits.
absl::Status StepRun::SampleOrCopy(std::span<const HeadRow> rows, const HeadBuffers& buffers) {
  const size_t vocabulary = static_cast<size_t>(model().config.vocabulary);
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    std::vector<SampleRow> sampled;
    for (; end < rows.size() && rows[end].on_device == rows[begin].on_device; ++end) {
      if (!rows[end].on_device) continue;
      sampled.push_back(SamplerOf(*rows[end].item).RowAt(row_position_[rows[end].row] + 1));
    }
    const auto first = static_cast<int64_t>(begin);
    if (!sampled.empty()) {
      const MatrixView logits = buffers.logits.row_range(first, static_cast<int64_t>(end) - first);
      ANNULUS_RETURN_IF_ERROR(
          ops().sample(stream(), {logits, sampled, buffers.tokens.data() + begin}));
    } else if (buffers.seen.data() != buffers.logits.data) {
      ANNULUS_RETURN_IF_ERROR(LaunchGraph());
      ANNULUS_RETURN_IF_ERROR(state_.parts.backend->Copy(
          stream(), buffers.seen.data() + begin * vocabulary, buffers.logits.row(first),
          (end - begin) * vocabulary * sizeof(float)));
    }
  }
  return absl::OkStatus();
}

void StepRun::UseRow(const HeadRow& row, size_t index, const HeadBuffers& buffers,
                     RankResult& result) {
  const PlanItem& item = *row.item;
  const int32_t position = row_position_[row.row];
  const auto vocabulary = static_cast<size_t>(model().config.vocabulary);
  const std::span<const float> logits = buffers.seen.subspan(index * vocabulary, vocabulary);
  if (!item.sampled) {
    result.logits.push_back({item.sequence, position, {logits.begin(), logits.end()}});
    return;
  }
  // A guessed row counts if the row before it gave the token that it holds.
  if (position > item.begin && row.row != next_row_) return;
  next_row_ = -1;
  Sampler& sampler = SamplerOf(item);
  absl::StatusOr<SampleResult> sampled =
      row.on_device ? sampler.ResultOf(buffers.tokens[index], position + 1)
                    : sampler.Sample(logits, position + 1, buffers.workspace);
  if (!sampled.ok()) {
    result.tokens.push_back({item.sequence, -1, false, std::nullopt, sampled.status()});
    return;
  }
  sampler.Observe(sampled->token);
  const bool ends_text = sampler.EndsText(sampled->token);
  const bool guessed = position + 1 < item.end &&
                       sampled->token == item.tokens[position + 1 - item.begin] && !ends_text;
  if (guessed) next_row_ = row.row + 1;
  result.tokens.push_back(
      {item.sequence, sampled->token, ends_text, std::move(sampled->logprob), absl::OkStatus()});
}

}  // namespace annulus
