// All near blocks; beyond them one block of `fan`, of `fan` squared, .. in ever wider bands: the
// best by the score of mean query and mean key.
#include <algorithm>

#include "absl/functional/function_ref.h"
#include "engine/sparse/policy_type.h"

namespace annulus::policies {
namespace {

constexpr NumberParameter kNear{"near", &AttentionPolicy::near, 1, kMostPolicyBlocks};
constexpr NumberParameter kFan{"fan", &AttentionPolicy::fan, 2, 64};
constexpr NumberParameter kLevels{"levels", &AttentionPolicy::levels, 0, 16};
constexpr const PolicyParameter* kHierarchicalParameters[] = {&kBlockParameter, &kNear, &kFan,
                                                              &kLevels, &kCoverageParameter};

// Appends the list of query block i: all near blocks, and from each farther group [begin, end) the
// block that pick returns. Goes from the diagonal to the beginning. Groups start at multiples of
// their width, so all query blocks whose band contains a block see it in the same group, except
// where a band's border cuts a group.
void AppendGroups(const AttentionPolicy& policy, int32_t i,
                  absl::FunctionRef<int32_t(int32_t begin, int32_t end)> pick,
                  std::vector<int32_t>& blocks) {
  const size_t first = blocks.size();
  int32_t end = i + 1;  // blocks from here on are settled
  for (int32_t kept = 0; kept <= policy.near && end > 0; ++kept) blocks.push_back(--end);
  int64_t width = 1;
  for (int level = 1; end > 0; ++level) {
    width *= policy.fan;
    const bool last = level == policy.levels || width >= end;
    for (int32_t group = 0; end > 0 && (last || group < policy.near); ++group) {
      const auto begin = static_cast<int32_t>((end - 1) / width * width);
      blocks.push_back(pick(begin, end));
      end = begin;
    }
  }
  std::reverse(blocks.begin() + static_cast<std::ptrdiff_t>(first), blocks.end());
}

// Where there are no scores, for pictures and counts: the first block of each group.
void AppendFirsts(const AttentionPolicy& policy, int /*head_group*/, int32_t i,
                  std::vector<int32_t>& blocks) {
  AppendGroups(
      policy, i, [](int32_t begin, int32_t) { return begin; }, blocks);
}

void PickBests(const AttentionPolicy& policy, std::span<const float> scores,
               std::vector<int32_t>& blocks) {
  AppendGroups(
      policy, static_cast<int32_t>(scores.size()) - 1,
      [&](int32_t begin, int32_t end) {
        return static_cast<int32_t>(std::max_element(scores.begin() + begin, scores.begin() + end) -
                                    scores.begin());
      },
      blocks);
}

BlockEstimate EstimateByMeans(const AttentionPolicy& /*policy*/) {
  return {.source = BlockEstimate::Source::kMeans};
}

void SetNear(AttentionPolicy& policy, int64_t blocks) {
  policy.near = static_cast<int32_t>(blocks);
}

}  // namespace

constinit const PolicyType kHierarchical = {
    .name = "hierarchical",
    .summary =
        "all near blocks, and the best block of each group farther away; far groups are larger",
    .parameters = kHierarchicalParameters,
    .append_blocks = AppendFirsts,
    .prompts = ChoiceKind::kPicked,
    .answers = ChoiceKind::kPicked,
    .estimate = EstimateByMeans,
    .pick = PickBests,
    .extent = {.set = SetNear, .denser = true},
};

}  // namespace annulus::policies
