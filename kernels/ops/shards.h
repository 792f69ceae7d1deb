#ifndef ANNULUS_KERNELS_OPS_SHARDS_H_
#define ANNULUS_KERNELS_OPS_SHARDS_H_

#include <bit>
#include <cstdint>

// Virtual shards make the order in which attention sums depend on positions alone, so that a row's
// bits do not depend on which rank holds which page.
//
// The page with index p (first position / page_tokens) belongs to shard p mod V. V is a power of
// two that never changes while the keys and values live. A row's state over one shard is
// accumulated over the shard's pages in ascending order. The V states are merged in one binary tree
// that first pairs the shards s and s + V/2, then s and s + V/4, and so on. An empty state is the
// identity of the merge, and the merge is commutative bit for bit, so it does not matter who
// computes a subtree, or when.
//
// In a ring of k = 2^j ranks, all pages with the same p mod k lie on one rank. They are one whole
// subtree, so each rank sends one state. (Which rank: RingIndexOfLeaf gives the residue with its j
// bits reversed.)
//
// If k does not divide V, each rank holds a range of leaves, V / k rounded down or up, and sends
// one state for each whole subtree in its range.
//
// A leaf is a shard's place in the tree, counted from the left: the bits of the shard number in
// reverse. Leaves 2i and 2i + 1 are merged first, so every subtree is a range of leaves.

namespace annulus {

inline constexpr int kMostVirtualShards = 64;  // the largest V

// Number of shards for an engine of `ranks` ranks: 8, or for more than 8 ranks the next power of
// two. More shards would cost more merges in prompts of a few thousand tokens.
constexpr int ShardsFor(int ranks) {
  return static_cast<int>(std::bit_ceil(static_cast<uint32_t>(ranks < 8 ? 8 : ranks)));
}

// The leaf of the page with index `page`. `shards` is a power of two up to kMostVirtualShards.
inline int LeafOfPage(int64_t page, int shards) {
  auto shard = static_cast<uint32_t>(page & (shards - 1));
  int leaf = 0;
  for (int bit = shards >> 1; bit > 0; bit >>= 1) {
    if ((shard & 1) != 0) leaf |= bit;
    shard >>= 1;
  }
  return leaf;
}

// The ring index, in [0, degree), that holds `leaf`. Each index holds a range of leaves, ascending
// from left to right, of floor(shards / degree) or one more. `degree` is at most `shards`.
inline int RingIndexOfLeaf(int leaf, int degree, int shards) { return leaf * degree / shards; }

// The most leaves that any ring index holds: shards / degree, rounded up. If degree does not divide
// shards, the fullest rank holds more than the mean: 12.5% more with 3 ranks and 8 shards.
inline int MostLeaves(int degree, int shards) { return (shards + degree - 1) / degree; }

// Whether an engine of `ranks` ranks forms rings of `degree` ranks. A ring of one is always formed.
// A larger one must leave its fullest rank fewer leaves than the ring with one rank less. If
// `ranks` divides `shards`, `degree` must divide it too: then each rank sends one state, and memory
// is planned for one.
inline bool IsUsefulDegree(int degree, int ranks, int shards) {
  if (degree == 1) return true;
  if (degree > shards || (shards % ranks == 0 && shards % degree != 0)) return false;
  return MostLeaves(degree, shards) < MostLeaves(degree - 1, shards);
}

// The level of the node at which two leaves meet: 1 for siblings, 0 if they are the same leaf.
inline int MeetingLevel(int leaf, int other) {
  return std::bit_width(static_cast<uint32_t>(leaf ^ other));
}

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_SHARDS_H_
