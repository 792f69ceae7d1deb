#ifndef ANNULUS_ENGINE_SPARSE_BLOCK_PATTERN_H_
#define ANNULUS_ENGINE_SPARSE_BLOCK_PATTERN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sparse/policy.h"

namespace annulus {

// What a pattern is built for: query blocks [first_block, first_block + blocks) of a sequence, for
// each of `head_groups` groups of heads.
struct PatternShape {
  int head_groups = 1;
  int32_t first_block = 0;
  int32_t blocks = 0;

  bool operator==(const PatternShape&) const = default;
};

// The key blocks of every (head group, query block), ascending, the diagonal last. Memory is linear
// in the number of chosen blocks.
struct BlockPattern {
  PatternShape shape;
  int32_t block_tokens = 64;
  std::vector<int64_t> offsets;  // [head_groups * blocks + 1]
  std::vector<int32_t> chosen;   // [offsets.back()]

  // `query_block` counts from the beginning of the sequence.
  std::span<const int32_t> keys(int head_group, int32_t query_block) const {
    const size_t list =
        static_cast<size_t>(head_group) * shape.blocks + (query_block - shape.first_block);
    return std::span(chosen).subspan(static_cast<size_t>(offsets[list]),
                                     static_cast<size_t>(offsets[list + 1] - offsets[list]));
  }
  size_t bytes() const {
    return offsets.size() * sizeof(offsets[0]) + chosen.size() * sizeof(chosen[0]);
  }
};

// The lists of a policy that does not look at content. Pure: the lists of a query block depend on
// the policy, the head group and the block alone, so chunks of a prompt give the lists of the
// whole.
BlockPattern BuildBlockPattern(const AttentionPolicy& policy, const PatternShape& shape);

// Share of the causal (row, key) pairs of the pattern's rows that lie in chosen blocks: 0..1. The
// sequence ends at `tokens`, which may lie inside the last block.
double PatternDensity(const BlockPattern& pattern, int64_t tokens);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_BLOCK_PATTERN_H_
