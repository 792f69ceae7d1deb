#ifndef ANNULUS_KERNELS_CUDA_KEPT_ATTENTION_H_
#define ANNULUS_KERNELS_CUDA_KEPT_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/sm80/attention.h"
#include "kernels/cuda/sm80/shard_merge.h"
#include "kernels/cuda/tuning/attention_path.h"
#include "kernels/cuda/tuning/attention_plan.h"
#include "kernels/ops/attention.h"

namespace annulus::cuda {

// The plan of an attention op, and its arrays on the device.
struct PlacedAttention {
  std::vector<AttentionRound> rounds;  // empty: there is nothing to compute
  int64_t partial_rows = 0;
  int largest_merge = 0;
  // That every launch needs: an arrival for each of `merges` and, of pairs, those that were taken.
  int64_t counters = 0;
  bool in_shards = false;  // parts merge in the tree of shards: see InvariantPlan
  int whole_boxes = 1;     // see HopperAttentionArguments
  // Each op sets the addresses of its queries and states, and page_offset.
  std::vector<AttentionItemView> items;
  // Device addresses.
  const AttentionUnit* prefill = nullptr;
  const AttentionUnit* decode = nullptr;
  const AttentionMerge* merges = nullptr;
  const ShardMerge* shard_merges = nullptr;
  const uint8_t* leaves = nullptr;
};

// The attention ops of a stream whose arrays are still in its upload area. The layers of a step
// attend the same rows and pages, each at a page_offset of its own. So the op of the first layer is
// planned and uploads the arrays; those of the other layers find them here, and upload only where
// their queries and states are.
//
// Entries are compared by the whole contents of their arrays, so no caller has to say that two ops
// are alike. They take about as many heap bytes as the upload area has. Not thread-safe.
class KeptAttention {
 public:
  // Maximum number of entries; beyond it a new one replaces the oldest. A layer on a ring of 8
  // ranks runs up to 8 ops. The layers of two cache groups differ, and so does the last layer,
  // which has fewer rows: that makes 24 entries in a step.
  static constexpr size_t kMost = 32;

  // Returns the entry that was kept for the same rows, pages, lists and kernels, or null if there
  // is none. `invariant`: whether the op table is row_invariant. `turn`: CudaStream::upload_turn();
  // drops all entries of another turn, whose uploads are gone. The pointer is valid until the next
  // call of Find or Keep.
  PlacedAttention* Find(const AttentionParams& params, const PrefillPath& path, bool invariant,
                        uint64_t turn);
  // Adds an entry for the arguments of the previous Find. Call at most once after each Find that
  // returned null. `turn`: CudaStream::upload_turn() after the entry's arrays were uploaded.
  void Keep(PlacedAttention placed, uint64_t turn);

 private:
  struct Entry {
    std::string key;
    PlacedAttention placed;
  };

  void StartTurn(uint64_t turn);

  uint64_t turn_ = 0;
  std::string asked_;  // the key of the previous Find
  std::vector<Entry> entries_;
  size_t oldest_ = 0;  // once there are kMost
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_KEPT_ATTENTION_H_
