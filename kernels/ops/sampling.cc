#include "kernels/ops/sampling.h"

#include <algorithm>

namespace annulus {

int32_t ChooseToken(std::span<Candidate> candidates, const SampleRow& how) {
  if (how.temperature == 0) {
    return std::min_element(candidates.begin(), candidates.end(), Before)->token;
  }
  ToWeights(candidates, how.temperature);
  candidates = KeepTopK(candidates, how.top_k);
  candidates = KeepTopP(candidates, how.top_p);
  candidates = KeepMinP(candidates, how.min_p);
  return Draw(candidates, how.uniform);
}

}  // namespace annulus
