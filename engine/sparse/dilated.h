#ifndef ANNULUS_ENGINE_SPARSE_DILATED_H_
#define ANNULUS_ENGINE_SPARSE_DILATED_H_

#include <cstdint>
#include <vector>

#include "engine/sparse/block_pattern.h"
#include "engine/sparse/policy.h"
#include "kernels/ops/attention.h"

namespace annulus {

// The policy `dilated` chooses tokens instead of blocks: the branches of kernels/ops/attention.h,
// mixed by their softmax denominators. Its block lists only say which blocks a row needs from other
// ranks: every block from the beginning of the longest segment on.

// Returns an empty list for a policy that chooses blocks. A policy with segments=auto must be
// resolved first.
std::vector<DilatedBranch> DilatedBranches(const AttentionPolicy& policy);

// Pairs of rows [begin, end), averaged over `heads`. A key kept by two branches counts as two
// pairs, since it is attended twice.
PairCount CountDilatedPairs(const std::vector<DilatedBranch>& branches, int heads, int64_t begin,
                            int64_t end);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_DILATED_H_
