#ifndef ANNULUS_KERNELS_OPS_LEAF_STACK_H_
#define ANNULUS_KERNELS_OPS_LEAF_STACK_H_

#include <array>

#include "kernels/base/check.h"
#include "kernels/ops/shards.h"

namespace annulus {

// Which states to merge when leaves come in ascending order: the canonical tree of
// kernels/ops/shards.h with at most log2(shards) + 2 states at a time. States live in numbered
// places of the caller's. A leaf may come several times in a row: then its states are merged with
// each other first, in that order.
class LeafStack {
 public:
  // Places that a tree of so many leaves takes: a state of each level, and one more of a leaf.
  static constexpr int Places(int shards) {
    return std::bit_width(static_cast<uint32_t>(shards)) + 1;
  }

  // Makes room for a state of `leaf`, which is the last one's or a later one: merges what no later
  // leaf comes between, by calls of merge(into, from) with places. Returns the place of the new
  // state. The caller fills it; a state of the same leaf as the last is merged by the next call.
  template <class Merge>
  int Push(int leaf, const Merge& merge) {
    if (size_ > 0) Settle(MeetingLevel(leaf, leaves_[size_ - 1]), merge);
    ANNULUS_CHECK(size_ < static_cast<int>(leaves_.size())) << "leaves must ascend";
    leaves_[size_] = leaf;
    return size_++;
  }

  // Merges everything into place 0; false if there is nothing.
  template <class Merge>
  bool Finish(const Merge& merge) {
    Settle(kLevels, merge);
    const bool any = size_ > 0;
    size_ = 0;
    return any;
  }

 private:
  static constexpr int kLevels = std::bit_width(static_cast<uint32_t>(kMostVirtualShards));

  // Merges the last states as long as they meet below `level`, or are of one leaf.
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
