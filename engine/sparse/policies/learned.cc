// For prompts: like adaptive, estimated by gates that were fitted to the model, or the `top` blocks
// by that estimate (SeerAttention, arXiv 2410.13276). Answers attend everything. See
// engine/sparse/gates.h.
#include "engine/sparse/policy_type.h"

namespace annulus::policies {
namespace {

constexpr NumberParameter kTop{"top", &AttentionPolicy::top, 0, kMostPolicyBlocks};
constexpr const PolicyParameter* kLearnedParameters[] = {&kBlockParameter, &kTop, &kTauParameter,
                                                         &kCoverageParameter};

BlockEstimate EstimateByGates(const AttentionPolicy& /*policy*/) {
  return {.source = BlockEstimate::Source::kGates};
}

// Gates work on pages and query blocks, as pooled means do.
constexpr AutoForm kLearnedForms[] = {
    {.label = "learned", .policy = "learned", .estimate_share = 0.01, .density = 0.2}};

}  // namespace

constinit const PolicyType kLearned = {
    .name = "learned",
    .summary =
        "like adaptive, but gates fitted to the model estimate the attention (SeerAttention)",
    .parameters = kLearnedParameters,
    .prompts = ChoiceKind::kRanking,
    .estimate = EstimateByGates,
    .forms = kLearnedForms,
};

}  // namespace annulus::policies
