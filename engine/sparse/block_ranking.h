#ifndef ANNULUS_ENGINE_SPARSE_BLOCK_RANKING_H_
#define ANNULUS_ENGINE_SPARSE_BLOCK_RANKING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/sparse/block_pattern.h"

namespace annulus {

// Scores of key blocks as they come back from the ranks that hold the keys: log masses, for some
// row groups and all query heads. Blocks that nobody scored have -infinity.
class BlockScores {
 public:
  BlockScores(int64_t groups, int heads, int32_t blocks);

  // Adds the result of one holder of keys: `scores` is [groups][heads][places], and place p is in
  // block blocks[p]. If several places or holders score the same block, adds their log masses, or
  // with `largest` keeps the largest.
  void Merge(std::span<const float> scores, std::span<const int32_t> blocks, bool largest);

  std::span<const float> row(int64_t group, int head) const {
    return std::span(scores_).subspan(static_cast<size_t>(group * heads_ + head) * blocks_,
                                      blocks_);
  }
  int heads() const { return heads_; }
  int64_t groups() const { return groups_; }

 private:
  const int64_t groups_;
  const int heads_;
  const size_t blocks_;
  std::vector<float> scores_;
};

// log(exp(a) + exp(b)).
float LogAdd(float a, float b);

// The estimated share of attention of key blocks [0, i] for each of some query blocks i and each kv
// head: see kernels/ops/block_masses.h.
class BlockMasses {
 public:
  // `query_blocks`: ascending.
  BlockMasses(std::vector<int32_t> query_blocks, int kv_heads);

  // Adds the result of one holder of keys: `masses` is [query blocks][kv_heads][places], and place
  // p is in block blocks[p].
  void Add(std::span<const float> masses, std::span<const int32_t> blocks);

  // The masses of the blocks up to the diagonal, for query block index q.
  std::span<const float> row(size_t q, int kv_head) const {
    return std::span(masses_).subspan(offsets_[q] + kv_head * Size(q), Size(q));
  }
  std::span<float> row(size_t q, int kv_head) {
    return std::span(masses_).subspan(offsets_[q] + kv_head * Size(q), Size(q));
  }
  const std::vector<int32_t>& query_blocks() const { return query_blocks_; }
  int kv_heads() const { return kv_heads_; }

 private:
  size_t Size(size_t q) const { return static_cast<size_t>(query_blocks_[q]) + 1; }

  const std::vector<int32_t> query_blocks_;
  const int kv_heads_;
  std::vector<size_t> offsets_;  // [query block index]
  std::vector<float> masses_;
};

// Converts scores with one row group per query block to masses: the softmax of each query head,
// averaged over the query heads of each kv head.
BlockMasses MassesOf(const BlockScores& scores, int kv_heads, std::vector<int32_t> query_blocks);

// Ranks the key blocks [0, i] of some query blocks i for each kv head, by descending estimated
// attention. The diagonal block and the first block always come first.
class BlockRanking {
 public:
  // Every mass must be below 2 (masses are shares, with rounding errors).
  explicit BlockRanking(const BlockMasses& masses);

  int kv_heads() const { return kv_heads_; }
  std::span<const int32_t> query_blocks() const { return query_blocks_; }  // ascending
  // Index of an existing query block.
  size_t Find(int32_t query_block) const;

  // All blocks of query block index q, best first.
  std::span<const int32_t> order(size_t q, int kv_head) const {
    return std::span(order_).subspan(Offset(q, kv_head), query_blocks_[q] + 1);
  }
  // How many blocks in order() are needed for a share `tau` of the mass. All if tau >= 1.
  int32_t Count(size_t q, int kv_head, double tau) const;
  // Mass of the first `count` blocks in order().
  double Mass(size_t q, int kv_head, int32_t count) const;

 private:
  size_t Offset(size_t q, int kv_head) const {
    return offsets_[q] + static_cast<size_t>(kv_head) * (query_blocks_[q] + 1);
  }
  void Rank(size_t q, int kv_head, std::span<const float> mass);

  const int kv_heads_;
  std::vector<int32_t> query_blocks_;
  std::vector<size_t> offsets_;  // [query block index] into the next two
  std::vector<int32_t> order_;
  std::vector<double> kept_;  // cumulative masses along order_
};

// Builds a pattern from the lists that choose(q, kv head, blocks) fills in, for each index q into
// `query_blocks` (ascending). Lists must be ascending, the diagonal last.
BlockPattern MakePattern(
    std::span<const int32_t> query_blocks, int kv_heads, int32_t block_tokens,
    absl::FunctionRef<void(size_t q, int kv_head, std::vector<int32_t>& blocks)> choose);

// Chooses the rows of [begin, end) whose attention is measured: at most kProbeRows positions,
// ascending, drawn by `seed` from the rows that see kProbeBlocks blocks or more; all of those if
// there are fewer.
inline constexpr int32_t kProbeRows = 16;
inline constexpr int32_t kProbeBlocks = 16;
std::vector<int32_t> ProbeRows(int32_t begin, int32_t end, int32_t block_tokens, uint64_t seed);

// For each i, the share of a row's attention inside the first counts[i] blocks of `order`. `counts`
// must be ascending. `exact`: the row's log mass for each block. `sink`: the score of a learned
// sink, which counts as attended; -infinity: none.
std::vector<double> Coverage(std::span<const float> exact, std::span<const int32_t> order,
                             std::span<const int32_t> counts, float sink);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_BLOCK_RANKING_H_
