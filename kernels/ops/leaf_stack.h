#ifndef ANNULUS_KERNELS_OPS_LEAF_STACK_H_
#define ANNULUS_KERNELS_OPS_LEAF_STACK_H_

#include <array>

#include "kernels/base/check.h"
#include "kernels/ops/shards.h"

namespace annulus {

// Decides which states to merge when leaves arrive in ascending order, so that they form the
// canonical tree of kernels/ops/shards.h while at most log2(shards) + 2 states exist at a time. The
// caller owns the states, in numbered places. A leaf may arrive several times in a row; its states
// are then merged with each other first, in that order.
class LeafStack {
 public:
  // Number of places a tree of `shards` leaves needs: one per level, and one more for a repeated
  // leaf.
  static constexpr int Places(int shards) {
    return std::bit_width(static_cast<uint32_t>(shards)) + 1;
  }

  // Returns the place for a new state of `leaf`; the caller fills it. `leaf` must not be less than
  // the previous one. First calls merge(into, from), with two places, for earlier states between
  // which no later leaf can come. If `leaf` is the same as the previous one, the next call merges
  // the two.
  template <class Merge>
  int Push(int leaf, const Merge& merge) {
    if (size_ > 0) Settle(MeetingLevel(leaf, leaves_[size_ - 1]), merge);
    ANNULUS_CHECK(size_ < static_cast<int>(leaves_.size())) << "leaves must ascend";
    leaves_[size_] = leaf;
    return size_++;
  }

  // Merges everything into place 0. Returns false if there was nothing.
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
