// The first blocks and a window (Longformer, arXiv 2004.05150).
#include "engine/sparse/policies/block_ranges.h"
#include "engine/sparse/policy_type.h"

namespace annulus::policies {
namespace {

constexpr const PolicyParameter* kGlobalLocalParameters[] = {
    &kBlockParameter, &kWindowParameter, &kGlobalParameter, &kCoverageParameter};

void AppendGlobalAndLocal(const AttentionPolicy& policy, int /*head_group*/, int32_t i,
                          std::vector<int32_t>& blocks) {
  AppendLeadingAndRecent(policy.global, WindowStart(policy, i), i, blocks);
}

int64_t CountGlobalAndLocal(const AttentionPolicy& policy, int /*head_group*/, int32_t i) {
  return CountLeadingAndRecent(policy.global, WindowStart(policy, i), i);
}

}  // namespace

constinit const PolicyType kGlobalLocal = {
    .name = "global_local",
    .summary = "the first blocks and a sliding window (Longformer)",
    .parameters = kGlobalLocalParameters,
    .append_blocks = AppendGlobalAndLocal,
    .count_blocks = CountGlobalAndLocal,
    .prompts = ChoiceKind::kLists,
    .answers = ChoiceKind::kLists,
    .extent = {.set = SetWindowExtent, .denser = true},
};

}  // namespace annulus::policies
