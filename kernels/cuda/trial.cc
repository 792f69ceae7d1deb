#include "kernels/cuda/trial.h"

#include "kernels/cuda/ops.h"

namespace annulus::cuda {

std::optional<OpTable> TrialOf(const OpTable& table) {
  if (table.attention != HopperAttention) return std::nullopt;
  OpTable trial = table;
  trial.name += "-trial";
  trial.attention = SectionedHopperAttention;
  return trial;
}

}  // namespace annulus::cuda
