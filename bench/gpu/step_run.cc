#include "bench/gpu/step_run.h"

#include <cstddef>
#include <cstdint>

#include "kernels/base/status_macros.h"

namespace annulus::bench {

absl::StatusOr<StepRun> StepRun::Create(Backend& backend, const OpTable& ops, OpInputs& inputs,
                                        const OpTimesOptions& options) {
  StepRun step(ops, inputs, options);
  const int64_t columns = options.step_columns;
  ANNULUS_ASSIGN_OR_RETURN(step.sequence_,
                           inputs.MakeSequence(options.step_tokens, 1, DType::kBF16));
  const std::vector<float> values = Normal(static_cast<size_t>(columns * columns), 0.02f);
  ANNULUS_ASSIGN_OR_RETURN(
      step.weight_,
      PackMatrix(ops, backend, {values.data(), DType::kF32, columns, columns}, DType::kBF16));
  const auto row_count = static_cast<size_t>(columns);
  ANNULUS_ASSIGN_OR_RETURN(step.row_, inputs.UploadNormal(row_count));
  ANNULUS_ASSIGN_OR_RETURN(step.other_, inputs.UploadNormal(2 * row_count));
  return step;
}

absl::Status StepRun::Run(Stream& stream) {
  const int64_t columns = options_.step_columns;
  const MatrixView row{row_.as<float>(), 1, columns, columns};
  const MatrixView other{other_.as<float>(), 2, columns, columns};
  const AttentionItem item = inputs_.ItemOf(sequence_, {});
  for (int layer = 0; layer < options_.step_layers; ++layer) {
    for (int block = 0; block < 4; ++block) {
      ANNULUS_RETURN_IF_ERROR(ops_.norm(stream, {row, other.row(1), {1e-5f}, row, false}));
      LinearParams params;
      params.input = row;
      params.weight = &weight_;
      params.output = other.row_range(0, 1);
      ANNULUS_RETURN_IF_ERROR(ops_.linear(stream, params));
    }
    ANNULUS_RETURN_IF_ERROR(inputs_.Attend(ops_, stream, sequence_, item));
    ANNULUS_RETURN_IF_ERROR(
        ops_.gated_mul(stream, {other.row_range(0, 1), row, row, Activation::kSilu, 0, 0}));
  }
  return absl::OkStatus();
}

absl::Status StepRun::RunHeld(Stream& stream) {
  ANNULUS_ASSIGN_OR_RETURN(const auto held, stream.BeginGraph());
  ANNULUS_RETURN_IF_ERROR(Run(stream));
  return held->Launch();
}

}  // namespace annulus::bench
