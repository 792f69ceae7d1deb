#include "engine/sparse/block_pattern.h"

#include <algorithm>

#include "engine/sparse/policy_type.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

// The rows at [begin, end) with all keys up to their own.
int64_t CausalPairs(int64_t begin, int64_t end) {
  return (end * (end + 1) - begin * (begin + 1)) / 2;
}

}  // namespace

BlockPattern BuildBlockPattern(const AttentionPolicy& policy, const PatternShape& shape) {
  ANNULUS_CHECK(shape.head_groups >= 1 && shape.first_block >= 0 && shape.blocks >= 0)
      << "impossible pattern";
  PolicyType::AppendBlocks* const append = TypeOf(policy.kind).append_blocks;
  ANNULUS_CHECK(append != nullptr) << PolicyName(policy.kind) << " chooses from content";
  BlockPattern pattern;
  pattern.shape = shape;
  pattern.block_tokens = policy.block;
  pattern.offsets.reserve(static_cast<size_t>(shape.head_groups) * shape.blocks + 1);
  pattern.offsets.push_back(0);
  for (int group = 0; group < shape.head_groups; ++group) {
    for (int32_t i = shape.first_block; i < shape.first_block + shape.blocks; ++i) {
      append(policy, group, i, pattern.chosen);
      pattern.offsets.push_back(static_cast<int64_t>(pattern.chosen.size()));
    }
  }
  pattern.chosen.shrink_to_fit();
  return pattern;
}

PatternShape ShapeFor(const AttentionPolicy& policy, int32_t begin, int32_t end, int kv_heads) {
  const int32_t first = begin / policy.block;
  return {TypeOf(policy.kind).heads_differ ? kv_heads : 1, first,
          (end - 1) / policy.block + 1 - first};
}

PairCount DensePairs(int64_t begin, int64_t end) {
  const auto pairs = static_cast<double>(CausalPairs(begin, end));
  return {pairs, pairs};
}

PairCount CountPairs(const BlockPattern& pattern, std::span<const int32_t> rows) {
  PairCount pairs;
  for (const int32_t row : rows) {
    const int32_t block = row / pattern.block_tokens;
    int64_t older = 0;
    for (int group = 0; group < pattern.shape.head_groups; ++group) {
      older += static_cast<int64_t>(pattern.keys(group, block).size()) - 1;
    }
    pairs.chosen += row % pattern.block_tokens + 1 +
                    static_cast<double>(older * pattern.block_tokens) / pattern.shape.head_groups;
    pairs.causal += row + 1.0;
  }
  return pairs;
}

PairCount CountPairs(const BlockPattern& pattern, int64_t begin, int64_t end) {
  const int64_t size = pattern.block_tokens;
  PairCount pairs;
  for (int64_t row = begin; row < end;) {
    const int64_t block = row / size;
    const int64_t next = std::min(end, (block + 1) * size);
    const auto diagonal = static_cast<double>(CausalPairs(row - block * size, next - block * size));
    for (int group = 0; group < pattern.shape.head_groups; ++group) {
      const auto older =
          static_cast<double>(pattern.keys(group, static_cast<int32_t>(block)).size() - 1);
      pairs.chosen += diagonal + older * static_cast<double>(size * (next - row));
    }
    pairs.causal += static_cast<double>(CausalPairs(row, next));
    row = next;
  }
  pairs.chosen /= pattern.shape.head_groups;
  return pairs;
}

}  // namespace annulus
