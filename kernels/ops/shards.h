#ifndef ANNULUS_KERNELS_OPS_SHARDS_H_
#define ANNULUS_KERNELS_OPS_SHARDS_H_

#include <bit>
#include <cstdint>

// Virtual shards: the order in which attention sums, as a matter of positions alone.
//
// The page with index p (first position / page_tokens) belongs to shard p mod V. V is a power of
// two that never changes while the keys and values live. A row's state over one shard is
// accumulated over the shard's pages in ascending order. The V states are merged in one binary tree
// that pairs the shards s and s + V/2 first, then s and s + V/4, and so on. An empty state is the
// identity of the merge, and the merge is commutative bit by bit, so a row's bits do not depend on
// who computes a subtree, or when.
//
// A ring of k = 2^j ranks with page p on rank p mod k therefore has whole subtrees on its ranks:
// the shards with the same residue mod k. Each rank sends one state.
//
// A ring whose k does not divide V has ranges of leaves of about the same length; such a rank sends
// the state of each subtree that its range is made of.
//
// A leaf is a shard's place in the tree, counted from the left: the bits of the shard number in
// reverse. Pairs of leaves 2i and 2i + 1 are merged first, so every subtree is a range of leaves.

namespace annulus {

inline constexpr int kMostVirtualShards = 64;

// Shards of an engine with so many ranks: 8, or the next power of two if there are more ranks. More
// shards cost more merges in prompts of a few thousand tokens.
constexpr int ShardsFor(int ranks) {
  return static_cast<int>(std::bit_ceil(static_cast<uint32_t>(ranks < 8 ? 8 : ranks)));
}

// The leaf of the page with that index. `shards`: a power of two up to kMostVirtualShards.
inline int LeafOfPage(int64_t page, int shards) {
  auto shard = static_cast<uint32_t>(page & (shards - 1));
  int leaf = 0;
  for (int bit = shards >> 1; bit > 0; bit >>= 1) {
    if ((shard & 1) != 0) leaf |= bit;
    shard >>= 1;
  }
  return leaf;
}

// Which of the k ring indices has a leaf: ranges of leaves from left to right, of floor(shards / k)
// or one more. `degree`: at most `shards`.
inline int RingIndexOfLeaf(int leaf, int degree, int shards) { return leaf * degree / shards; }

// The most leaves of any ring index: shards / degree, rounded up. So much less even than the mean
// is the fullest rank of a ring that does not divide the shards: 12.5% with 3 of 8.
inline int MostLeaves(int degree, int shards) { return (shards + degree - 1) / degree; }

// Whether an engine of `ranks` makes rings of that degree: where the fullest rank has less than in
// every smaller ring, and where the ring divides the shards or the ranks do not either. So engines
// of 2^j ranks send one state from each rank, and plan memory for no more.
inline bool IsUsefulDegree(int degree, int ranks, int shards) {
  if (degree == 1) return true;
  if (degree > shards || (shards % ranks == 0 && shards % degree != 0)) return false;
  return MostLeaves(degree, shards) < MostLeaves(degree - 1, shards);
}

// The level of the node at which two different leaves meet: 1 for siblings.
inline int MeetingLevel(int leaf, int other) {
  return std::bit_width(static_cast<uint32_t>(leaf ^ other));
}

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_SHARDS_H_
