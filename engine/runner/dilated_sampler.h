#ifndef ANNULUS_ENGINE_RUNNER_DILATED_SAMPLER_H_
#define ANNULUS_ENGINE_RUNNER_DILATED_SAMPLER_H_

#include <span>
#include <vector>

#include "engine/runner/choice.h"

namespace annulus {

// Samples the coverage of policy `dilated`: for seeded rows, the share of the softmax mass on keys
// that at least one branch keeps. The attended keys are known ahead, so only queries and scores are
// exchanged.
class DilatedSampler {
 public:
  explicit DilatedSampler(const ChoiceContext& context) : context_(context) {}

  // `items`: ascending by item, each with one dilated part; entries beyond layer.items are ignored.
  // Appends the coverage of own sampled rows to `report`, with pairs left at 0.
  absl::Status Run(const ChoiceLayer& layer, std::span<const ChoosingItem> items,
                   std::vector<LayerAttention>& report);

 private:
  LayerAttention Report(const ChoiceLayer& layer, const Choice& item) const;

  const ChoiceContext context_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_DILATED_SAMPLER_H_
