#include "bench/attention/density.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/sparse/block_pattern.h"
#include "engine/sparse/dilated.h"
#include "engine/sparse/policy_type.h"

namespace annulus::bench {

double PolicyDensity(const AttentionPolicy& policy, int64_t tokens, int kv_heads) {
  constexpr int64_t kMostBlocks = 1024;  // that are looked at
  const int64_t blocks = (tokens + policy.block - 1) / policy.block;
  const int64_t stride = (blocks + kMostBlocks - 1) / kMostBlocks;
  const std::vector<DilatedBranch> branches = DilatedBranches(policy);
  PairCount pairs;
  for (int64_t block = (stride - 1) / 2; block < blocks; block += stride) {
    const int64_t begin = block * policy.block;
    const int64_t end = std::min(tokens, begin + policy.block);
    const PatternShape shape =
        ShapeFor(policy, static_cast<int32_t>(begin), static_cast<int32_t>(end), kv_heads);
    pairs += branches.empty() ? CountPairs(BuildBlockPattern(policy, shape), begin, end)
                              : CountDilatedPairs(branches, kv_heads, begin, end);
  }
  return pairs.density();
}

absl::StatusOr<AttentionPolicy> WithDensity(AttentionPolicy policy, double density, int64_t tokens,
                                            int kv_heads) {
  const PolicyExtent& extent = TypeOf(policy.kind).extent;
  if (extent.set == nullptr) {
    std::string known;
    for (const PolicyType* type : kPolicyTypes) {
      if (type->extent.set == nullptr) continue;
      absl::StrAppend(&known, known.empty() ? "" : ", ", type->name);
    }
    return absl::InvalidArgumentError(absl::StrCat("the density of ", PolicyName(policy.kind),
                                                   " follows from its parameters, so "
                                                   "--density does not go with it; it goes with ",
                                                   known));
  }
  const auto dense_at = [&](int64_t blocks) {
    extent.set(policy, blocks);
    return PolicyDensity(policy, tokens, kv_heads) >= density;
  };
  const int64_t most = (tokens + policy.block - 1) / policy.block;
  int64_t low = 1;
  int64_t high = most;
  while (low < high) {
    // Towards the least extent that is dense enough, or the largest that still is.
    const int64_t middle = extent.denser ? (low + high) / 2 : (low + high + 1) / 2;
    const bool enough = dense_at(middle);
    if (extent.denser) {
      (enough ? high : low) = enough ? middle : middle + 1;
    } else {
      (enough ? low : high) = enough ? middle : middle - 1;
    }
  }
  dense_at(low);
  return policy;
}

}  // namespace annulus::bench
