// For prompts: the fewest blocks estimated to hold `tau` of the attention. Answers attend
// everything. Estimators: sums along antidiagonals (XAttention, arXiv 2503.16428); means of queries
// and keys, where vertical and slash lines stand out as well (FlexPrefill, 2502.20766; MInference,
// 2407.02490).
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/sparse/policy_type.h"
#include "kernels/base/nearest_name.h"

namespace annulus::policies {
namespace {

constexpr std::array<const char*, 2> kEstimatorNames = {"antidiagonal", "pooled"};  // [Estimator]

class EstimatorParameter final : public PolicyParameter {
 public:
  constexpr EstimatorParameter() : PolicyParameter("estimator") {}

  absl::Status Read(absl::string_view text, AttentionPolicy& policy) const override {
    for (size_t i = 0; i < kEstimatorNames.size(); ++i) {
      if (text != kEstimatorNames[i]) continue;
      policy.estimator = static_cast<Estimator>(i);
      return absl::OkStatus();
    }
    const std::vector<std::string> known(kEstimatorNames.begin(), kEstimatorNames.end());
    return absl::InvalidArgumentError(absl::StrCat(
        "attention policy adaptive: unknown estimator '", text.substr(0, 32), "'; did you mean ",
        NearestName(text, known), "? Known: ", absl::StrJoin(known, ", ")));
  }
  absl::Status Check(const AttentionPolicy& /*policy*/) const override { return absl::OkStatus(); }
  std::optional<std::string> Text(const AttentionPolicy& policy) const override {
    return kEstimatorNames[static_cast<size_t>(policy.estimator)];
  }
  std::string Describe(const AttentionPolicy& defaults) const override {
    return absl::StrCat(*Text(defaults), " (or pooled)");
  }
};

constexpr NumberParameter kScoreStride{"stride", &AttentionPolicy::score_stride, 8, 16};
constexpr EstimatorParameter kEstimator;
constexpr const PolicyParameter* kAdaptiveParameters[] = {
    &kBlockParameter, &kScoreStride, &kEstimator, &kTauParameter, &kCoverageParameter};

absl::Status CheckScoreStride(const AttentionPolicy& policy) {
  if (policy.score_stride == 8 || policy.score_stride == 16) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("attention policy adaptive: stride ",
                                                 policy.score_stride, " is not allowed: 8 or 16"));
}

BlockEstimate EstimateByEstimator(const AttentionPolicy& policy) {
  if (policy.estimator == Estimator::kPooled) return {.source = BlockEstimate::Source::kMeans};
  return {.source = BlockEstimate::Source::kAntidiagonals, .stride = policy.score_stride};
}

// Sums along antidiagonals with stride 16 cost half of 1/16 of attending, and more for the
// exponentials; means work on pages and query blocks; exact sampling costs a sixteenth of a
// percent.
constexpr AutoForm kAdaptiveForms[] = {
    {.label = "antidiagonal",
     .policy = "adaptive:estimator=antidiagonal",
     .estimate_share = 0.06,
     .density = 0.2},
    {.label = "pooled",
     .policy = "adaptive:estimator=pooled",
     .estimate_share = 0.01,
     .density = 0.4},
};

}  // namespace

constinit const PolicyType kAdaptive = {
    .name = "adaptive",
    .summary =
        "in prompts, the fewest blocks estimated to hold tau of the attention (XAttention, "
        "FlexPrefill); in answers, all keys",
    .parameters = kAdaptiveParameters,
    .check = CheckScoreStride,
    .prompts = ChoiceKind::kRanking,
    .estimate = EstimateByEstimator,
    .forms = kAdaptiveForms,
};

}  // namespace annulus::policies
