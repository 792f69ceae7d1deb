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
  int64_t arrivals = 0;    // that every launch needs: one for each of `merges`
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
  // The most entries; a new one replaces the oldest. A ring of 8 ranks has up to 8 ops in a layer.
  // With two cache groups, and a last layer of fewer rows, a step has 24 that differ.
  static constexpr size_t kMost = 32;

  // The entry with the rows, pages and lists of `params` and the kernels of `path`. `invariant`:
  // whether the table is row_invariant. `turn`: CudaStream::upload_turn(); entries of another turn
  // are dropped. Null if there is none. Valid until the next call.
  PlacedAttention* Find(const AttentionParams& params, const PrefillPath& path, bool invariant,
                        uint64_t turn);
  // Adds an entry for the arguments of the previous Find, at most once. `turn`: that of its
  // uploads.
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
