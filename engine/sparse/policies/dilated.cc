// Tokens instead of blocks: branches of segments, of which each keeps one token of `rate` (LongNet,
// arXiv 2307.02486). See engine/sparse/dilated.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/sparse/policies/block_ranges.h"
#include "engine/sparse/policy_type.h"
#include "kernels/base/check.h"

namespace annulus::policies {
namespace {

constexpr absl::string_view kAutoSegments = "auto";
constexpr int32_t kFirstAutoSegment = 2048;

// Empty: segments=auto.
class SegmentsParameter final : public ListParameter {
 public:
  constexpr SegmentsParameter()
      : ListParameter("segments", &AttentionPolicy::segments, kMostPolicyTokens) {}

  absl::Status Read(absl::string_view text, AttentionPolicy& policy) const override {
    if (text != kAutoSegments) return ListParameter::Read(text, policy);
    policy.segments.clear();
    return absl::OkStatus();
  }
  // CheckSegments looks at them together with rates and block.
  absl::Status Check(const AttentionPolicy& /*policy*/) const override { return absl::OkStatus(); }
  std::optional<std::string> Text(const AttentionPolicy& policy) const override {
    return policy.segments.empty() ? std::string(kAutoSegments) : Joined(policy);
  }
  std::string Describe(const AttentionPolicy& defaults) const override {
    return absl::StrCat(Joined(defaults), " (multiples of rate and block, or auto)");
  }
};

// They go with given segments.
class SegmentRatesParameter final : public ListParameter {
 public:
  constexpr SegmentRatesParameter()
      : ListParameter("rates", &AttentionPolicy::rates, kMostPolicyBlocks) {}

  std::optional<std::string> Text(const AttentionPolicy& policy) const override {
    if (policy.segments.empty()) return std::nullopt;
    return Joined(policy);
  }
};

constexpr SegmentsParameter kSegments;
constexpr SegmentRatesParameter kSegmentRates;
constexpr const PolicyParameter* kDilatedParameters[] = {&kBlockParameter, &kSegments,
                                                         &kSegmentRates};

template <class... Parts>
absl::Status RefuseSegments(const Parts&... why) {
  return absl::InvalidArgumentError(absl::StrCat("attention policy dilated: ", why...));
}

absl::Status CheckAutoSegments(const AttentionPolicy& policy) {
  if (policy.rates != AttentionPolicy().rates) {
    return RefuseSegments(
        "rates are not allowed with segments=auto, which uses 1, 2, 4, ..; remove them, or give "
        "segments");
  }
  if (kFirstAutoSegment % policy.block == 0) return absl::OkStatus();
  return RefuseSegments("block ", policy.block,
                        " is not allowed with segments=auto: it must divide the first segment of ",
                        kFirstAutoSegment, " tokens; change it, or give segments");
}

absl::Status CheckSegments(const AttentionPolicy& policy) {
  if (policy.segments.empty()) return CheckAutoSegments(policy);
  if (policy.segments.size() != policy.rates.size()) {
    return RefuseSegments(policy.segments.size(), " segments and ", policy.rates.size(),
                          " rates are given; give one rate for each segment");
  }
  for (size_t i = 0; i < policy.segments.size(); ++i) {
    const int32_t segment = policy.segments[i];
    if (segment < 1 || segment > kMostPolicyTokens || segment % policy.rates[i] != 0 ||
        segment % policy.block != 0) {
      return RefuseSegments("segment ", segment, " is not allowed: give a multiple of its rate (",
                            policy.rates[i], ") and of the block (", policy.block, "), at most ",
                            kMostPolicyTokens);
    }
  }
  if (std::find(policy.rates.begin(), policy.rates.end(), 1) == policy.rates.end()) {
    return RefuseSegments("one rate must be 1, so that every token attends at least itself");
  }
  return absl::OkStatus();
}

void ResolveSegments(int64_t tokens, AttentionPolicy& policy) {
  if (!policy.segments.empty()) return;
  policy.rates.clear();
  int32_t rate = 1;
  do {
    policy.segments.push_back(kFirstAutoSegment * rate);
    policy.rates.push_back(rate);
    rate *= 2;
  } while (policy.segments.back() < tokens && policy.segments.back() < kMostPolicyTokens);
}

// The blocks from the beginning of the longest segment that holds query block i.
void AppendLongestSegment(const AttentionPolicy& policy, int /*head_group*/, int32_t i,
                          std::vector<int32_t>& blocks) {
  const int32_t segment = *std::max_element(policy.segments.begin(), policy.segments.end());
  AppendRange(i - i % (segment / policy.block), i + 1, blocks);
}

std::vector<DilatedBranch> BranchesOf(const AttentionPolicy& policy) {
  ANNULUS_CHECK(!policy.segments.empty()) << "segments=auto was not resolved";
  std::vector<DilatedBranch> branches;
  for (size_t i = 0; i < policy.segments.size(); ++i) {
    branches.push_back({policy.segments[i], policy.rates[i]});
  }
  return branches;
}

}  // namespace

constinit const PolicyType kDilated = {
    .name = "dilated",
    .summary = "every rate-th token, in segments of the text (LongNet)",
    .parameters = kDilatedParameters,
    .check = CheckSegments,
    .resolve = ResolveSegments,
    .append_blocks = AppendLongestSegment,
    .branches = BranchesOf,
};

}  // namespace annulus::policies
