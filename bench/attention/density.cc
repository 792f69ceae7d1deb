#include "bench/attention/density.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/sparse/block_pattern.h"

namespace annulus {
namespace {

// The parameter that makes a policy denser as it grows, counted in blocks or in tokens.
struct Extent {
  PolicyKind kind;
  int32_t AttentionPolicy::*value;
  bool in_tokens;
};
constexpr std::array<Extent, 3> kExtents = {{
    {PolicyKind::kWindow, &AttentionPolicy::window, true},
    {PolicyKind::kGlobalLocal, &AttentionPolicy::window, true},
    {PolicyKind::kRandom, &AttentionPolicy::random, false},
}};

const Extent* ExtentOf(PolicyKind kind) {
  for (const Extent& extent : kExtents) {
    if (extent.kind == kind) return &extent;
  }
  return nullptr;
}

}  // namespace

double PolicyDensity(const AttentionPolicy& policy, int64_t tokens, int kv_heads) {
  const auto end = static_cast<int32_t>(tokens);
  const PairCount pairs =
      CountPairs(BuildBlockPattern(policy, ShapeFor(policy, 0, end, kv_heads)), 0, tokens);
  return pairs.chosen / pairs.causal;
}

absl::StatusOr<AttentionPolicy> WithDensity(AttentionPolicy policy, double density, int64_t tokens,
                                            int kv_heads) {
  const Extent* extent = ExtentOf(policy.kind);
  if (extent == nullptr) {
    std::string known;
    for (const Extent& other : kExtents) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", PolicyName(other.kind));
    }
    return absl::InvalidArgumentError(absl::StrCat("the density of ", PolicyName(policy.kind),
                                                   " follows from its parameters, so "
                                                   "--density does not go with it; it goes with ",
                                                   known));
  }
  // Random blocks alone make the density; the window is only the diagonal's block.
  if (policy.kind == PolicyKind::kRandom) policy.window = policy.block;
  const auto dense_at = [&](int64_t blocks) {
    policy.*extent->value =
        static_cast<int32_t>(extent->in_tokens ? blocks * policy.block : blocks);
    return PolicyDensity(policy, tokens, kv_heads) >= density;
  };
  int64_t low = 1;
  int64_t high = (tokens + policy.block - 1) / policy.block;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (dense_at(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  dense_at(low);
  return policy;
}

}  // namespace annulus
