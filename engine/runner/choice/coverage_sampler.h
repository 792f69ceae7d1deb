#ifndef ANNULUS_ENGINE_RUNNER_CHOICE_COVERAGE_SAMPLER_H_
#define ANNULUS_ENGINE_RUNNER_CHOICE_COVERAGE_SAMPLER_H_

#include <span>
#include <vector>

#include "engine/runner/choice/choice.h"

namespace annulus {

// Samples the coverage of policies that do not look at content: for seeded rows, the share of the
// softmax mass on the keys that the policy keeps. The attended keys are known ahead, so only
// queries and scores are exchanged. A row's mass is asked for in at most kMostParts parts, however
// long the sequence is, since this host adds them up.
class CoverageSampler {
 public:
  explicit CoverageSampler(const ChoiceContext& context) : context_(context) {}

  // `items`: ascending by item, each with one part: branches, or lists without a contract; entries
  // beyond layer.items are ignored. Appends the coverage of own sampled rows to `report`, with
  // pairs left at 0.
  absl::Status Run(const ChoiceLayer& layer, std::span<const ChoosingItem> items,
                   std::vector<LayerAttention>& report);

 private:
  static constexpr int32_t kMostParts = 256;

  LayerAttention Report(const ChoiceLayer& layer, const Choice& item) const;

  const ChoiceContext context_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_CHOICE_COVERAGE_SAMPLER_H_
