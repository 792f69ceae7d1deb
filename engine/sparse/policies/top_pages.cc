// For answers: the `pages` blocks with the highest upper bound of scores, and the row's own (Quest,
// arXiv 2406.10774). Prompts attend everything.
#include <algorithm>

#include "engine/sparse/policy_type.h"

namespace annulus::policies {
namespace {

constexpr NumberParameter kPages{"pages", &AttentionPolicy::pages, 1, kMostPolicyBlocks};
constexpr const PolicyParameter* kTopPagesParameters[] = {&kBlockParameter, &kPages};

void PickTop(const AttentionPolicy& policy, std::span<const float> scores,
             std::vector<int32_t>& blocks) {
  const auto diagonal = static_cast<int32_t>(scores.size()) - 1;
  for (int32_t b = 0; b < diagonal; ++b) blocks.push_back(b);
  if (policy.pages < diagonal) {
    std::nth_element(blocks.begin(), blocks.begin() + policy.pages, blocks.end(),
                     [&](int32_t a, int32_t b) {
                       return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
                     });
    blocks.resize(static_cast<size_t>(policy.pages));
    std::sort(blocks.begin(), blocks.end());
  }
  blocks.push_back(diagonal);
}

BlockEstimate EstimateByBounds(const AttentionPolicy& /*policy*/) {
  return {.source = BlockEstimate::Source::kBounds};
}

}  // namespace

constinit const PolicyType kTopPages = {
    .name = "top_pages",
    .summary = "in answers, the blocks whose scores can be highest (Quest); in prompts, all keys",
    .parameters = kTopPagesParameters,
    .answers = ChoiceKind::kPicked,
    .estimate = EstimateByBounds,
    .pick = PickTop,
};

}  // namespace annulus::policies
