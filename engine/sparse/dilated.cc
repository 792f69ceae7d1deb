#include "engine/sparse/dilated.h"

#include "engine/sparse/policy_type.h"

namespace annulus {

std::vector<DilatedBranch> DilatedBranches(const AttentionPolicy& policy) {
  const PolicyType& type = TypeOf(policy.kind);
  return type.branches == nullptr ? std::vector<DilatedBranch>() : type.branches(policy);
}

PairCount CountDilatedPairs(const std::vector<DilatedBranch>& branches, int heads, int64_t begin,
                            int64_t end) {
  PairCount pairs = DensePairs(begin, end);
  pairs.chosen = 0;
  for (const DilatedBranch& branch : branches) {
    for (int64_t row = begin; row < end; ++row) {
      // Heads h < heads with h mod rate = row mod rate, and keys of the segment up to the row.
      const int64_t residue = row % branch.rate;
      const int64_t keeping = (heads - residue + branch.rate - 1) / branch.rate;
      if (residue >= heads) continue;
      const int64_t keys = row % branch.segment / branch.rate + 1;
      pairs.chosen += static_cast<double>(keeping * keys);
    }
  }
  pairs.chosen /= heads;
  return pairs;
}

}  // namespace annulus
