// Reference choice of tokens: kernels/ops/sampling.h, row by row.
#include <vector>

#include "kernels/cpu/reference/reference.h"
#include "kernels/ops/checks.h"

namespace annulus::reference {

absl::Status Sample(Stream&, const SampleParams& params) {
  CheckSample(params);
  std::vector<Candidate> workspace(params.logits.cols);
  for (int64_t r = 0; r < params.logits.rows; ++r) {
    const std::span<const float> logits(params.logits.row(r), workspace.size());
    params.tokens[r] = ChooseFrom(logits, params.rows[r], workspace);
  }
  return absl::OkStatus();
}

}  // namespace annulus::reference
