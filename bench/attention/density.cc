#include "bench/attention/density.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/sparse/block_pattern.h"
#include "engine/sparse/dilated.h"

namespace annulus {
namespace {

// The parameter that a policy's density follows, as a number of blocks.
struct Extent {
  PolicyKind kind;
  void (*set)(AttentionPolicy& policy, int64_t blocks);
  bool denser;  // as it grows; else sparser
};

void SetWindow(AttentionPolicy& policy, int64_t blocks) {
  policy.window = static_cast<int32_t>(blocks * policy.block);
}

const std::array<Extent, 6> kExtents = {{
    {PolicyKind::kWindow, SetWindow, true},
    {PolicyKind::kDilatedBlocks,
     [](AttentionPolicy& policy, int64_t blocks) {
       // In the proportions of its default.
       policy.rates.clear();
       for (const int32_t rate : AttentionPolicy().rates) {
         policy.rates.push_back(static_cast<int32_t>(rate * blocks));
       }
     },
     false},
    {PolicyKind::kStrided,
     [](AttentionPolicy& policy, int64_t blocks) { policy.stride = static_cast<int32_t>(blocks); },
     false},
    {PolicyKind::kGlobalLocal, SetWindow, true},
    {PolicyKind::kRandom,
     [](AttentionPolicy& policy, int64_t blocks) {
       // Random blocks alone make the density; the window is only the diagonal's block.
       policy.window = policy.block;
       policy.random = static_cast<int32_t>(blocks);
     },
     true},
    {PolicyKind::kHierarchical,
     [](AttentionPolicy& policy, int64_t blocks) { policy.near = static_cast<int32_t>(blocks); },
     true},
}};

const Extent* ExtentOf(PolicyKind kind) {
  for (const Extent& extent : kExtents) {
    if (extent.kind == kind) return &extent;
  }
  return nullptr;
}

}  // namespace

double PolicyDensity(const AttentionPolicy& policy, int64_t tokens, int kv_heads) {
  constexpr int64_t kMostBlocks = 1024;  // that are looked at
  const int64_t blocks = (tokens + policy.block - 1) / policy.block;
  const int64_t stride = (blocks + kMostBlocks - 1) / kMostBlocks;
  PairCount pairs;
  for (int64_t block = (stride - 1) / 2; block < blocks; block += stride) {
    const int64_t begin = block * policy.block;
    const int64_t end = std::min(tokens, begin + policy.block);
    const PatternShape shape =
        ShapeFor(policy, static_cast<int32_t>(begin), static_cast<int32_t>(end), kv_heads);
    pairs += policy.kind == PolicyKind::kDilated
                 ? CountDilatedPairs(DilatedBranches(policy), kv_heads, begin, end)
                 : CountPairs(BuildBlockPattern(policy, shape), begin, end);
  }
  return pairs.density();
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
  const auto dense_at = [&](int64_t blocks) {
    extent->set(policy, blocks);
    return PolicyDensity(policy, tokens, kv_heads) >= density;
  };
  const int64_t most = (tokens + policy.block - 1) / policy.block;
  int64_t low = 1;
  int64_t high = most;
  while (low < high) {
    // Towards the least extent that is dense enough, or the largest that still is.
    const int64_t middle = extent->denser ? (low + high) / 2 : (low + high + 1) / 2;
    const bool enough = dense_at(middle);
    if (extent->denser) {
      (enough ? high : low) = enough ? middle : middle + 1;
    } else {
      (enough ? low : high) = enough ? middle : middle - 1;
    }
  }
  dense_at(low);
  return policy;
}

}  // namespace annulus
