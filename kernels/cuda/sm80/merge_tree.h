#ifndef ANNULUS_KERNELS_CUDA_SM80_MERGE_TREE_H_
#define ANNULUS_KERNELS_CUDA_SM80_MERGE_TREE_H_

// The merge of a row's parts in the tree of kernels/ops/shards.h, by one warp. Every merge has the
// bits of merge_state, so it does not matter which of them another op does.
#include "kernels/cuda/common/device.h"
#include "kernels/cuda/common/state.h"
#include "kernels/ops/shards.h"

namespace annulus::cuda {

inline constexpr int kTreeLevels = 6;
static_assert(1 << kTreeLevels == kMostVirtualShards);

// MeetingLevel of shards.h, for the device.
ANNULUS_DEVICE int MeetingOf(int leaf, int other) {
  int level = 0;
  for (int bits = leaf ^ other; bits != 0; bits >>= 1) ++level;
  return level;
}

// A lane's part of a state: every 32nd column from the lane's first on.
struct StateColumns {
  static constexpr int kColumns = 4;
  float lse;
  float o[kColumns];

  ANNULUS_DEVICE void Merge(const StateColumns& from) {
    const MergeWeights weights = WeightsOfMerge(lse, from.lse);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) o[n] = Merged(weights, o[n], from.o[n]);
    lse = weights.lse;
  }
};

ANNULUS_DEVICE StateColumns LoadColumns(const float* o, float lse, int first, int v_dim) {
  StateColumns state{lse, {}};
#pragma unroll
  for (int n = 0; n < StateColumns::kColumns; ++n) {
    const int d = first + n * kWarp;
    if (d < v_dim) state.o[n] = o[d];
  }
  return state;
}

// Subtrees that are complete and wait for their neighbours to the right: `waiting[l]` has up to 2^l
// leaves. Registers are chosen by masks, as in sm90/attention_consumer.h (WeightOf).
class MergeTree {
 public:
  // `own` is the state of the leaf that comes next, and the leaf after it meets it at level
  // `meeting` of the tree, from 1 on.
  ANNULUS_DEVICE void Put(StateColumns own, int meeting) {
    const uint32_t stop = 1u << (meeting - 1);
#pragma unroll
    for (int level = 0; level < kTreeLevels; ++level) {
      if (((stop - 1) >> level & 1u) != 0) Rise(level, own);
    }
#pragma unroll
    for (int level = 0; level < kTreeLevels; ++level) {
      if ((stop >> level & 1u) != 0) waiting_[level] = own;
    }
    held_ |= stop;
  }

  // `own` is the state of the last leaf. Returns the state of all.
  ANNULUS_DEVICE StateColumns Finish(StateColumns own) {
#pragma unroll
    for (int level = 0; level < kTreeLevels; ++level) Rise(level, own);
    return own;
  }

 private:
  ANNULUS_DEVICE void Rise(int level, StateColumns& own) {
    if ((held_ >> level & 1u) == 0) return;
    own.Merge(waiting_[level]);
    held_ &= ~(1u << level);
  }

  StateColumns waiting_[kTreeLevels];
  uint32_t held_ = 0;
};

// The parts of a row: part p's state is at index p * step, and belongs to leaves[p].
struct RowParts {
  const float* o;  // [.., v_dim]
  const float* lse;
  int64_t step;
  const uint8_t* leaves;
  int parts;
};

// The lane's columns from `first` on. Loads in batches, so that they overlap.
ANNULUS_DEVICE StateColumns MergedParts(const RowParts& row, int first, int v_dim) {
  constexpr int kBatch = 4;
  MergeTree tree;
  StateColumns own;  // of the leaf that is being merged
  int leaf = -1;
#pragma unroll 1
  for (int begin = 0; begin < row.parts; begin += kBatch) {
    StateColumns loaded[kBatch];
    int leaf_of[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int part = Smaller(begin + b, row.parts - 1);
      const int64_t at = part * row.step;
      loaded[b] = LoadColumns(row.o + at * v_dim, row.lse[at], first, v_dim);
      leaf_of[b] = row.leaves[part];
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (begin + b >= row.parts) break;
      if (leaf_of[b] == leaf) {
        own.Merge(loaded[b]);
        continue;
      }
      if (leaf >= 0) tree.Put(own, MeetingOf(leaf, leaf_of[b]));
      own = loaded[b];
      leaf = leaf_of[b];
    }
  }
  return tree.Finish(own);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_MERGE_TREE_H_
