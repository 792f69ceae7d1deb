#ifndef ANNULUS_ENGINE_RUNNER_STEP_STEP_HEAD_H_
#define ANNULUS_ENGINE_RUNNER_STEP_STEP_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/runner/rank_state.h"
#include "engine/runner/step/step_buffers.h"
#include "engine/runner/step/step_rows.h"

namespace annulus {

// The end of a step on one rank: logits of the rows that want them, sampling, and the log
// probabilities of a prompt's tokens. The heart beats for every kLogitsRows rows. Everything passed
// to the constructor must outlive it.
class StepHead {
 public:
  // `evidence`: what sampled rows attended. `launch` runs what the stream has held back so far: the
  // head calls it before the host needs a result.
  StepHead(RankState& state, const StepPlan& plan, const StepRows& rows, StepBuffers& buffers,
           std::span<const EvidenceItem> evidence, std::function<absl::Status()> launch)
      : state_(state),
        plan_(plan),
        rows_(rows),
        buffers_(buffers),
        evidence_(evidence),
        launch_(std::move(launch)) {}

  // Reads what the last layer passed on. Takes the buffers of StepBuffers::Phase::kHead. Appends
  // logits and tokens to `result`.
  absl::Status Run(RankResult& result);

 private:
  // A row whose logits are needed. `on_device`: the op `sample` chooses its token.
  struct Row {
    const PlanItem* item = nullptr;
    int64_t row = 0;
    bool on_device = false;
  };

  std::vector<Row> ListRows() const;
  MatrixView Logits(size_t first, size_t count) const;
  std::span<float> SeenLogits(size_t first, size_t count) const;
  absl::Status ComputeLogits(std::span<const Row> rows);
  absl::Status NormResiduals(std::span<const Row> rows, MatrixView normed);
  absl::Status NormStreams(std::span<const Row> rows, MatrixView normed);
  absl::Status MergeStreams(std::span<const Row> rows, MatrixView merged);
  absl::Status SampleOrCopy(std::span<const Row> rows);
  Sampler& SamplerOf(const PlanItem& item) const;
  bool ChosenOnDevice(const PlanItem& item) const;
  static void UsePromptRow(const PlanItem& item, int32_t position, std::span<const float> logits,
                           RankResult& result);
  void UseRow(const Row& row, size_t index, RankResult& result);
  std::vector<EvidenceShare> SharesOf(const PlanItem& item, int32_t position) const;

  RankState& state_;
  const StepPlan& plan_;
  const StepRows& rows_;
  StepBuffers& buffers_;
  const std::span<const EvidenceItem> evidence_;
  const std::function<absl::Status()> launch_;
  int64_t next_row_ = -1;  // the next guessed row that counts: see UseRow
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_STEP_STEP_HEAD_H_
