#ifndef ANNULUS_ENGINE_RUNNER_DILATED_SAMPLER_H_
#define ANNULUS_ENGINE_RUNNER_DILATED_SAMPLER_H_

#include <span>
#include <vector>

#include "engine/runner/choice.h"

namespace annulus {

// Samples what `dilated` covers: for seeded rows, the share of the softmax mass on keys that at
// least one branch keeps. What it attends is settled ahead, so only queries and scores travel.
class DilatedSampler {
 public:
  explicit DilatedSampler(const ChoiceContext& context) : context_(context) {}

  // `items`: ascending item, each of one dilated part; those beyond layer.items are left out.
  // Appends the coverage of own sampled rows to `report`, without pairs.
  absl::Status Run(const ChoiceLayer& layer, std::span<const ChoosingItem> items,
                   std::vector<LayerAttention>& report);

 private:
  LayerAttention Report(const ChoiceLayer& layer, const Choice& item) const;

  const ChoiceContext context_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_DILATED_SAMPLER_H_
