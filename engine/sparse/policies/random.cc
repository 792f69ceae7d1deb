// The first blocks, a window, and seeded random blocks between them (BigBird, arXiv 2007.14062).
#include <limits>

#include "engine/sparse/draw.h"
#include "engine/sparse/policies/block_ranges.h"
#include "engine/sparse/policy_type.h"

namespace annulus::policies {
namespace {

constexpr NumberParameter kDrawn{"random", &AttentionPolicy::random, 0, 4096};
constexpr NumberParameter kSeed{"seed", &AttentionPolicy::seed, 0,
                                std::numeric_limits<int32_t>::max()};
constexpr const PolicyParameter* kRandomParameters[] = {
    &kBlockParameter, &kWindowParameter, &kGlobalParameter, &kDrawn, &kSeed, &kCoverageParameter};

void AppendRandom(const AttentionPolicy& policy, int head_group, int32_t i,
                  std::vector<int32_t>& blocks) {
  const int32_t start = WindowStart(policy, i);
  const int32_t leading = std::min(policy.global, start);
  AppendRange(0, leading, blocks);
  const uint64_t seed = Mix(Mix(static_cast<uint64_t>(policy.seed)) ^
                            (static_cast<uint64_t>(head_group) << 32) ^ static_cast<uint64_t>(i));
  const std::vector<int32_t> drawn = Draw(leading, start, policy.random, seed);
  blocks.insert(blocks.end(), drawn.begin(), drawn.end());
  AppendRange(start, i + 1, blocks);
}

int64_t CountRandom(const AttentionPolicy& policy, int /*head_group*/, int32_t i) {
  const int32_t start = WindowStart(policy, i);
  const int32_t between = start - std::min(policy.global, start);
  return CountLeadingAndRecent(policy.global, start, i) + std::min(policy.random, between);
}

// Random blocks alone make the density; the window is only the diagonal's block.
void SetDrawn(AttentionPolicy& policy, int64_t blocks) {
  policy.window = policy.block;
  policy.random = static_cast<int32_t>(blocks);
}

}  // namespace

constinit const PolicyType kRandom = {
    .name = "random",
    .summary = "the first blocks, a sliding window and random blocks between them (BigBird)",
    .parameters = kRandomParameters,
    .append_blocks = AppendRandom,
    .count_blocks = CountRandom,
    .heads_differ = true,
    .prompts = ChoiceKind::kLists,
    .answers = ChoiceKind::kLists,
    .extent = {.set = SetDrawn, .denser = true},
};

}  // namespace annulus::policies
