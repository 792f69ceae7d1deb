// Sinks, which are the first tokens, and a sliding window (StreamingLLM, arXiv 2309.17453).
#include "engine/sparse/policies/block_ranges.h"
#include "engine/sparse/policy_type.h"

namespace annulus::policies {
namespace {

constexpr NumberParameter kSinks{"sinks", &AttentionPolicy::sinks, 0, kMostPolicyTokens};
constexpr const PolicyParameter* kWindowParameters[] = {&kBlockParameter, &kSinks,
                                                        &kWindowParameter, &kCoverageParameter};

int32_t SinkBlocks(const AttentionPolicy& policy) {
  return policy.sinks / policy.block + (policy.sinks % policy.block != 0 ? 1 : 0);
}

void AppendSinksAndWindow(const AttentionPolicy& policy, int /*head_group*/, int32_t i,
                          std::vector<int32_t>& blocks) {
  AppendLeadingAndRecent(SinkBlocks(policy), WindowStart(policy, i), i, blocks);
}

int64_t CountSinksAndWindow(const AttentionPolicy& policy, int /*head_group*/, int32_t i) {
  return CountLeadingAndRecent(SinkBlocks(policy), WindowStart(policy, i), i);
}

}  // namespace

constinit const PolicyType kWindow = {
    .name = "window",
    .summary = "the first tokens and a sliding window (StreamingLLM)",
    .parameters = kWindowParameters,
    .append_blocks = AppendSinksAndWindow,
    .count_blocks = CountSinksAndWindow,
    .prompts = ChoiceKind::kLists,
    .answers = ChoiceKind::kLists,
    .extent = {.set = SetWindowExtent, .denser = true},
};

}  // namespace annulus::policies
