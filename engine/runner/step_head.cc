// The end of a step: logits of the rows that want them, and sampling.
#include <algorithm>
#include <utility>

#include "engine/runner/step_run.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

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
                           rank_.parts_.host_arena->Take<Candidate>(vocabulary));
  ANNULUS_ASSIGN_OR_RETURN(const std::span<float> seen, TakeSeen(logits));
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
    if (model().config.logits_soft_cap > 0) {
      ANNULUS_RETURN_IF_ERROR(
          ops().soft_cap(stream(), {logits.row_range(0, count), model().config.logits_soft_cap}));
    }
    if (seen.data() != logits.data) {
      ANNULUS_RETURN_IF_ERROR(rank_.parts_.backend->Copy(stream(), seen.data(), logits.data,
                                                         count * vocabulary * sizeof(float)));
    }
    ANNULUS_RETURN_IF_ERROR(stream().Synchronize());
    for (size_t n = 0; n < count; ++n) {
      const Wanted& w = wanted[first + n];
      ANNULUS_RETURN_IF_ERROR(UseLogits(*w.item, row_position_[w.row],
                                        seen.subspan(n * vocabulary, vocabulary), workspace,
                                        result));
    }
  }
  return absl::OkStatus();
}

// Where the host reads logits: in place, or in a copy.
absl::StatusOr<std::span<float>> StepRun::TakeSeen(const MatrixView& logits) {
  const auto count = static_cast<size_t>(logits.rows * logits.cols);
  if (rank_.parts_.host_arena == rank_.parts_.arena) return std::span<float>(logits.data, count);
  return rank_.parts_.host_arena->Take<float>(count);
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
