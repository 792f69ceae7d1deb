#ifndef ANNULUS_ENGINE_SPARSE_POLICIES_BLOCK_RANGES_H_
#define ANNULUS_ENGINE_SPARSE_POLICIES_BLOCK_RANGES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/sparse/policy.h"

// Ranges of blocks that several policies keep.

namespace annulus::policies {

// Appends [begin, end).
inline void AppendRange(int32_t begin, int32_t end, std::vector<int32_t>& blocks) {
  for (int32_t j = begin; j < end; ++j) blocks.push_back(j);
}

// Appends the first `leading` blocks, then [start, i].
inline void AppendLeadingAndRecent(int32_t leading, int32_t start, int32_t i,
                                   std::vector<int32_t>& blocks) {
  AppendRange(0, std::min(leading, start), blocks);
  AppendRange(start, i + 1, blocks);
}

// How many blocks those are.
inline int64_t CountLeadingAndRecent(int32_t leading, int32_t start, int32_t i) {
  return int64_t{std::min(leading, start)} + i + 1 - start;
}

// The oldest block that holds a key which the first row of query block i sees through the window.
inline int32_t WindowStart(const AttentionPolicy& policy, int32_t i) {
  const int64_t oldest = static_cast<int64_t>(i) * policy.block - policy.window + 1;
  return oldest <= 0 ? 0 : static_cast<int32_t>(oldest / policy.block);
}

// The extent of a policy that is its window.
inline void SetWindowExtent(AttentionPolicy& policy, int64_t blocks) {
  policy.window = static_cast<int32_t>(blocks * policy.block);
}

}  // namespace annulus::policies

#endif  // ANNULUS_ENGINE_SPARSE_POLICIES_BLOCK_RANGES_H_
