// Reference choice of tokens: the steps of kernels/base/candidates.h, one after the other.
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/reference.h"
#include "kernels/ops/checks.h"

namespace annulus::reference {

absl::Status Sample(Stream&, const SampleParams& params) {
  CheckSample(params);
  std::vector<Candidate> candidates(params.logits.cols);
  for (int64_t r = 0; r < params.logits.rows; ++r) {
    const float* const logits = params.logits.row(r);
    for (int64_t i = 0; i < params.logits.cols; ++i) {
      candidates[i] = {ReadLogit(logits[i]), static_cast<int32_t>(i)};
    }
    const bool usable = std::any_of(candidates.begin(), candidates.end(), [](const Candidate& c) {
      return c.value > -std::numeric_limits<float>::infinity();
    });
    params.tokens[r] = usable ? ChooseToken(candidates, params.rows[r]) : -1;
  }
  return absl::OkStatus();
}

}  // namespace annulus::reference
