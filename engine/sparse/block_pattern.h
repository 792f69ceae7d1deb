#ifndef ANNULUS_ENGINE_SPARSE_BLOCK_PATTERN_H_
#define ANNULUS_ENGINE_SPARSE_BLOCK_PATTERN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sparse/policy.h"

namespace annulus {

// The extent of a pattern: query blocks [first_block, first_block + blocks) of a sequence, for each
// of `head_groups` groups of heads.
struct PatternShape {
  int head_groups = 1;
  int32_t first_block = 0;
  int32_t blocks = 0;

  bool operator==(const PatternShape&) const = default;
};

// The key blocks chosen by each (head group, query block): ascending, the diagonal block last.
// Takes memory linear in the number of chosen blocks.
struct BlockPattern {
  PatternShape shape;
  int32_t block_tokens = 64;
  std::vector<int64_t> offsets;  // [head_groups * blocks + 1]
  std::vector<int32_t> chosen;   // [offsets.back()]

  // Chosen key blocks. `query_block` counts from the beginning of the sequence.
  std::span<const int32_t> keys(int head_group, int32_t query_block) const {
    const size_t list =
        static_cast<size_t>(head_group) * shape.blocks + (query_block - shape.first_block);
    return std::span(chosen).subspan(static_cast<size_t>(offsets[list]),
                                     static_cast<size_t>(offsets[list + 1] - offsets[list]));
  }
  size_t bytes() const {
    return offsets.size() * sizeof(offsets[0]) + chosen.size() * sizeof(chosen[0]);
  }

  bool operator==(const BlockPattern&) const = default;
};

// Builds the lists that PolicyType::append_blocks gives; the policy must have one. Pure: a query
// block's list depends only on the policy, the head group and the block, so the chunks of a prompt
// get the same lists as the whole. `hierarchical` has such lists and yet chooses by content: its
// lists have the right lengths, for counts and pictures, but not the blocks that rows will choose.
BlockPattern BuildBlockPattern(const AttentionPolicy& policy, const PatternShape& shape);

// The shape that covers rows [begin, end), begin < end, of a model with `kv_heads`. Has a single
// head group if all heads choose alike.
PatternShape ShapeFor(const AttentionPolicy& policy, int32_t begin, int32_t end, int kv_heads);

// Counts of (row, key) pairs, summed over rows and averaged over heads: those in chosen blocks, and
// all causal ones. Density is their ratio.
struct PairCount {
  double chosen = 0;
  double causal = 0;

  PairCount& operator+=(const PairCount& more) {
    chosen += more.chosen;
    causal += more.causal;
    return *this;
  }
  double density() const { return causal == 0 ? 1 : chosen / causal; }

  bool operator==(const PairCount&) const = default;
};

// All pairs of rows [begin, end).
PairCount DensePairs(int64_t begin, int64_t end);

// Pairs of the rows at these positions. The pattern must cover them.
PairCount CountPairs(const BlockPattern& pattern, std::span<const int32_t> rows);
// Pairs of rows [begin, end). The pattern must cover them.
PairCount CountPairs(const BlockPattern& pattern, int64_t begin, int64_t end);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_BLOCK_PATTERN_H_
