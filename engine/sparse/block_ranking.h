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

  // Takes what one holder found: `scores` is [groups][heads][places], place p lies in block
  // blocks[p]. Log masses of one block that several places or holders have are added up; with
  // `largest` the largest is kept instead.
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

// Shares of the attention that key blocks [0, i] of some query blocks i are estimated to have, for
// each kv head: kernels/ops/block_masses.h.
class BlockMasses {
 public:
  // `query_blocks`: ascending.
  BlockMasses(std::vector<int32_t> query_blocks, int kv_heads);

  // Adds what one holder found: `masses` is [query blocks][kv_heads][places], place p lies in block
  // blocks[p].
  void Add(std::span<const float> masses, std::span<const int32_t> blocks);

  // Of the blocks up to the diagonal.
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

// The masses that scores give whose row groups are one for each query block: the softmax of each
// query head, mean over those of a kv head.
BlockMasses MassesOf(const BlockScores& scores, int kv_heads, std::vector<int32_t> query_blocks);

// The key blocks [0, i] of some query blocks i, for each kv head from the most to the least
// estimated attention. The diagonal and the first block stand before all others.
class BlockRanking {
 public:
  // No mass is 2 or more: they are shares, each good to less than that.
  explicit BlockRanking(const BlockMasses& masses);

  int kv_heads() const { return kv_heads_; }
  std::span<const int32_t> query_blocks() const { return query_blocks_; }  // ascending
  // Index of a query block that is there.
  size_t Find(int32_t query_block) const;

  // All blocks of query block index q, best first.
  std::span<const int32_t> order(size_t q, int kv_head) const {
    return std::span(order_).subspan(Offset(q, kv_head), query_blocks_[q] + 1);
  }
  // How many of the order are needed for a share of `tau` of the mass; tau >= 1: all.
  int32_t Count(size_t q, int kv_head, double tau) const;
  // Mass of the first `count` of the order.
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
  std::vector<double> kept_;  // running sums along the order
};

// The lists of `tau`, for the ranking's query blocks; those between them have empty lists.
BlockPattern PatternOf(const BlockRanking& ranking, int32_t block_tokens, double tau);

// Lists that choose(query block, kv head) makes, ascending with the diagonal last, for each of
// `query_blocks` (ascending).
BlockPattern MakePattern(
    std::span<const int32_t> query_blocks, int kv_heads, int32_t block_tokens,
    absl::FunctionRef<void(size_t q, int kv_head, std::vector<int32_t>& blocks)> choose);

// Positions of at most `kProbeRows` rows of [begin, end) that are sampled: seeded, uniform among
// those with a causal length of kProbeBlocks blocks or more, ascending; all, where there are fewer.
inline constexpr int32_t kProbeRows = 16;
inline constexpr int32_t kProbeBlocks = 16;
std::vector<int32_t> ProbeRows(int32_t begin, int32_t end, int32_t block_tokens, uint64_t seed);

// The share of a row's attention that lies in the first counts[i] blocks of `order`, for each i;
// `counts` ascends. `exact` is the row's log mass of every block, `sink` the score of a learned
// sink, which always counts as attended (-infinity: none).
std::vector<double> Coverage(std::span<const float> exact, std::span<const int32_t> order,
                             std::span<const int32_t> counts, float sink);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_BLOCK_RANKING_H_
