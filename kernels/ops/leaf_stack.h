#ifndef ANNULUS_KERNELS_OPS_LEAF_STACK_H_
#define ANNULUS_KERNELS_OPS_LEAF_STACK_H_

#include <array>

#include "kernels/base/check.h"
#include "kernels/ops/shards.h"

namespace annulus {

// Tells the caller which states to merge, and when, so that the states of leaves that arrive in
// ascending order are merged in the tree of kernels/ops/shards.h with at most log2(shards) + 2 of
// them in memory. The caller owns the states, in places numbered from 0. If a leaf arrives several
// times in a row, its states are merged with each other first, in order of arrival. Not
// thread-safe.
class LeafStack {
 public:
  // Number of places a tree of `shards` leaves needs: one per level, and one more for a repeated
  // leaf.
  static constexpr int Places(int shards) {
    return std::bit_width(static_cast<uint32_t>(shards)) + 1;
  }

  // Returns the place that the caller must fill with a new state of `leaf`, which must not be less
  // than the previous leaf. Before that, calls merge(into, from) with two places for each subtree
  // that no later leaf can belong to; place `from` is then free. If `leaf` is the previous leaf
  // again, the next call merges the two.
  template <class Merge>
  int Push(int leaf, const Merge& merge) {
    if (size_ > 0) Settle(MeetingLevel(leaf, leaves_[size_ - 1]), merge);
    ANNULUS_CHECK(size_ < static_cast<int>(leaves_.size())) << "leaves must ascend";
    leaves_[size_] = leaf;
    return size_++;
  }

  // Merges everything into place 0; false if there was nothing. The object can then be used again.
  template <class Merge>
  bool Finish(const Merge& merge) {
    Settle(kLevels, merge);
    const bool any = size_ > 0;
    size_ = 0;
    return any;
  }

 private:
  static constexpr int kLevels = std::bit_width(static_cast<uint32_t>(kMostVirtualShards));

  // Merges the last two states while they are of the same leaf or meet below `level`.
  template <class Merge>
  void Settle(int level, const Merge& merge) {
    while (size_ > 1) {
      const int meeting = MeetingLevel(leaves_[size_ - 2], leaves_[size_ - 1]);
      if (meeting > 0 && meeting >= level) return;
      merge(size_ - 2, size_ - 1);
      --size_;
    }
  }

  std::array<int, kLevels + 1> leaves_;
  int size_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_LEAF_STACK_H_
