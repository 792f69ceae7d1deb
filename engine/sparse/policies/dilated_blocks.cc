// Blocks i, i - r, i - 2r, ..; head groups take the rates r in turn.
#include "engine/sparse/policies/block_ranges.h"
#include "engine/sparse/policy_type.h"

namespace annulus::policies {
namespace {

constexpr ListParameter kRates{"rates", &AttentionPolicy::rates, kMostPolicyBlocks};
constexpr const PolicyParameter* kDilatedBlocksParameters[] = {&kBlockParameter, &kRates,
                                                               &kCoverageParameter};

void AppendEvery(const AttentionPolicy& policy, int head_group, int32_t i,
                 std::vector<int32_t>& blocks) {
  const int32_t rate = policy.rates[head_group % policy.rates.size()];
  for (int32_t j = i % rate; j <= i; j += rate) blocks.push_back(j);
}

int64_t CountEvery(const AttentionPolicy& policy, int head_group, int32_t i) {
  return i / policy.rates[head_group % policy.rates.size()] + 1;
}

// In the proportions of the default.
void SetRates(AttentionPolicy& policy, int64_t blocks) {
  policy.rates.clear();
  for (const int32_t rate : AttentionPolicy().rates) {
    policy.rates.push_back(static_cast<int32_t>(rate * blocks));
  }
}

}  // namespace

constinit const PolicyType kDilatedBlocks = {
    .name = "dilated_blocks",
    .summary = "every rate-th block; heads take the given rates in turn",
    .parameters = kDilatedBlocksParameters,
    .append_blocks = AppendEvery,
    .count_blocks = CountEvery,
    .heads_differ = true,
    .prompts = ChoiceKind::kLists,
    .answers = ChoiceKind::kLists,
    .extent = {.set = SetRates, .denser = false},
};

}  // namespace annulus::policies
