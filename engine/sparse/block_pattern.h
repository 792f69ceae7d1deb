#ifndef ANNULUS_ENGINE_SPARSE_BLOCK_PATTERN_H_
#define ANNULUS_ENGINE_SPARSE_BLOCK_PATTERN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
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

  bool operator==(const BlockPattern&) const = default;
};

// The lists of a policy that does not look at content. Pure: the lists of a query block depend on
// the policy, the head group and the block alone, so chunks of a prompt give the lists of the
// whole.
BlockPattern BuildBlockPattern(const AttentionPolicy& policy, const PatternShape& shape);

// The list of query block i under kHierarchical, appended to `blocks`: all that are near, and from
// every farther group, [begin, end), the one that pick gives. Walks from the diagonal to the
// beginning. Groups lie on multiples of their width, so a block has the same group for all query
// blocks whose band holds it, except where the border of a band cuts a group.
void AppendHierarchical(const AttentionPolicy& policy, int32_t i,
                        absl::FunctionRef<int32_t(int32_t begin, int32_t end)> pick,
                        std::vector<int32_t>& blocks);

// Whether the lists of the policy depend on queries and keys. BuildBlockPattern then serves
// kHierarchical alone and picks the first of each group.
bool ChoosesByContent(const AttentionPolicy& policy);

// The shape that covers rows [begin, end), begin < end, of a model with `kv_heads`: one head group
// where all heads choose alike.
PatternShape ShapeFor(const AttentionPolicy& policy, int32_t begin, int32_t end, int kv_heads);

// (row, key) pairs, summed over rows and averaged over heads: those in chosen blocks, and all that
// are causal. Density is their ratio.
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

// Of some rows (positions), which the pattern covers.
PairCount CountPairs(const BlockPattern& pattern, std::span<const int32_t> rows);
// Of rows [begin, end), which the pattern covers.
PairCount CountPairs(const BlockPattern& pattern, int64_t begin, int64_t end);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_BLOCK_PATTERN_H_
