#include "engine/sparse/block_pattern.h"

#include <algorithm>

#include "engine/sparse/draw.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

// Appends [begin, end).
void AppendRange(int32_t begin, int32_t end, std::vector<int32_t>& blocks) {
  for (int32_t j = begin; j < end; ++j) blocks.push_back(j);
}

int32_t CeilDiv(int32_t a, int32_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The oldest block that holds a key which the first row of query block i sees through the window.
int32_t WindowStart(const AttentionPolicy& policy, int32_t i) {
  const int64_t oldest = static_cast<int64_t>(i) * policy.block - policy.window + 1;
  return oldest <= 0 ? 0 : static_cast<int32_t>(oldest / policy.block);
}

// The first block of the longest segment that holds query block i.
int32_t LongestSegmentStart(const AttentionPolicy& policy, int32_t i) {
  const int32_t segment = *std::max_element(policy.segments.begin(), policy.segments.end());
  return i - i % (segment / policy.block);
}

// The first `leading` blocks, then [start, i].
void AppendLeadingAndRecent(int32_t leading, int32_t start, int32_t i,
                            std::vector<int32_t>& blocks) {
  AppendRange(0, std::min(leading, start), blocks);
  AppendRange(start, i + 1, blocks);
}

void AppendEvery(int32_t rate, int32_t i, std::vector<int32_t>& blocks) {
  for (int32_t j = i % rate; j <= i; j += rate) blocks.push_back(j);
}

void AppendStrided(const AttentionPolicy& policy, int32_t i, std::vector<int32_t>& blocks) {
  const int32_t recent = std::max(0, i - policy.local);
  for (int32_t j = i % policy.stride; j < recent; j += policy.stride) blocks.push_back(j);
  AppendRange(recent, i + 1, blocks);
}

void AppendRandom(const AttentionPolicy& policy, int head_group, int32_t i,
                  std::vector<int32_t>& blocks) {
  const int32_t start = WindowStart(policy, i);
  const int32_t leading = std::min(policy.global, start);
  AppendRange(0, leading, blocks);
  const uint64_t seed = Mix(Mix(static_cast<uint64_t>(policy.seed)) ^
                            (static_cast<uint64_t>(head_group) << 32) ^ static_cast<uint64_t>(i));
  const std::vector<int32_t> drawn = Draw(leading, start, policy.random, seed);
  blocks.insert(blocks.end(), drawn.begin(), drawn.end());
  AppendRange(start, i + 1, blocks);
}

}  // namespace

void AppendHierarchical(const AttentionPolicy& policy, int32_t i,
                        absl::FunctionRef<int32_t(int32_t begin, int32_t end)> pick,
                        std::vector<int32_t>& blocks) {
  const size_t first = blocks.size();
  int32_t end = i + 1;  // blocks from here on are settled
  for (int32_t kept = 0; kept <= policy.near && end > 0; ++kept) blocks.push_back(--end);
  int64_t width = 1;
  for (int level = 1; end > 0; ++level) {
    width *= policy.fan;
    const bool last = level == policy.levels || width >= end;
    for (int32_t group = 0; end > 0 && (last || group < policy.near); ++group) {
      const auto begin = static_cast<int32_t>((end - 1) / width * width);
      blocks.push_back(pick(begin, end));
      end = begin;
    }
  }
  std::reverse(blocks.begin() + static_cast<std::ptrdiff_t>(first), blocks.end());
}

namespace {

void AppendKeys(const AttentionPolicy& policy, int head_group, int32_t i,
                std::vector<int32_t>& blocks) {
  switch (policy.kind) {
    case PolicyKind::kDense:
      return AppendRange(0, i + 1, blocks);
    case PolicyKind::kWindow:
      return AppendLeadingAndRecent(CeilDiv(policy.sinks, policy.block), WindowStart(policy, i), i,
                                    blocks);
    case PolicyKind::kDilated:
      return AppendRange(LongestSegmentStart(policy, i), i + 1, blocks);
    case PolicyKind::kDilatedBlocks:
      return AppendEvery(policy.rates[head_group % policy.rates.size()], i, blocks);
    case PolicyKind::kStrided:
      return AppendStrided(policy, i, blocks);
    case PolicyKind::kGlobalLocal:
      return AppendLeadingAndRecent(policy.global, WindowStart(policy, i), i, blocks);
    case PolicyKind::kRandom:
      return AppendRandom(policy, head_group, i, blocks);
    case PolicyKind::kHierarchical:
      return AppendHierarchical(
          policy, i, [](int32_t begin, int32_t) { return begin; }, blocks);
    case PolicyKind::kAdaptive:
    case PolicyKind::kTopPages:
    case PolicyKind::kLearned:
    case PolicyKind::kAuto:
      ANNULUS_CHECK(false) << PolicyName(policy.kind) << " chooses from content";
  }
}

// The rows at [begin, end) with all keys up to their own.
int64_t CausalPairs(int64_t begin, int64_t end) {
  return (end * (end + 1) - begin * (begin + 1)) / 2;
}

}  // namespace

BlockPattern BuildBlockPattern(const AttentionPolicy& policy, const PatternShape& shape) {
  ANNULUS_CHECK(shape.head_groups >= 1 && shape.first_block >= 0 && shape.blocks >= 0)
      << "impossible pattern";
  BlockPattern pattern;
  pattern.shape = shape;
  pattern.block_tokens = policy.block;
  pattern.offsets.reserve(static_cast<size_t>(shape.head_groups) * shape.blocks + 1);
  pattern.offsets.push_back(0);
  for (int group = 0; group < shape.head_groups; ++group) {
    for (int32_t i = shape.first_block; i < shape.first_block + shape.blocks; ++i) {
      AppendKeys(policy, group, i, pattern.chosen);
      pattern.offsets.push_back(static_cast<int64_t>(pattern.chosen.size()));
    }
  }
  pattern.chosen.shrink_to_fit();
  return pattern;
}

bool ChoosesByContent(const AttentionPolicy& policy) {
  return policy.kind == PolicyKind::kHierarchical || policy.kind == PolicyKind::kAdaptive ||
         policy.kind == PolicyKind::kTopPages || policy.kind == PolicyKind::kLearned ||
         policy.kind == PolicyKind::kAuto;
}

PatternShape ShapeFor(const AttentionPolicy& policy, int32_t begin, int32_t end, int kv_heads) {
  const bool by_head =
      policy.kind == PolicyKind::kDilatedBlocks || policy.kind == PolicyKind::kRandom;
  const int32_t first = begin / policy.block;
  return {by_head ? kv_heads : 1, first, (end - 1) / policy.block + 1 - first};
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
