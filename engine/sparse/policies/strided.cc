// The last blocks, and every stride-th before them (Sparse Transformer, arXiv 1904.10509).
#include "engine/sparse/policies/block_ranges.h"
#include "engine/sparse/policy_type.h"

namespace annulus::policies {
namespace {

constexpr NumberParameter kStride{"stride", &AttentionPolicy::stride, 1, kMostPolicyBlocks};
constexpr NumberParameter kLocal{"local", &AttentionPolicy::local, 0, kMostPolicyBlocks};
constexpr const PolicyParameter* kStridedParameters[] = {&kBlockParameter, &kStride, &kLocal,
                                                         &kCoverageParameter};

void AppendStrided(const AttentionPolicy& policy, int /*head_group*/, int32_t i,
                   std::vector<int32_t>& blocks) {
  const int32_t recent = std::max(0, i - policy.local);
  for (int32_t j = i % policy.stride; j < recent; j += policy.stride) blocks.push_back(j);
  AppendRange(recent, i + 1, blocks);
}

int64_t CountStrided(const AttentionPolicy& policy, int /*head_group*/, int32_t i) {
  const int32_t recent = std::max(0, i - policy.local);
  const int32_t first = i % policy.stride;
  const int32_t older = first < recent ? (recent - 1 - first) / policy.stride + 1 : 0;
  return int64_t{older} + i + 1 - recent;
}

void SetStride(AttentionPolicy& policy, int64_t blocks) {
  policy.stride = static_cast<int32_t>(blocks);
}

}  // namespace

constinit const PolicyType kStrided = {
    .name = "strided",
    .summary = "the last blocks, and every stride-th block before them (Sparse Transformer)",
    .parameters = kStridedParameters,
    .append_blocks = AppendStrided,
    .count_blocks = CountStrided,
    .prompts = ChoiceKind::kLists,
    .answers = ChoiceKind::kLists,
    .extent = {.set = SetStride, .denser = false},
};

}  // namespace annulus::policies
