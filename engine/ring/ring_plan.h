#ifndef ANNULUS_ENGINE_RING_RING_PLAN_H_
#define ANNULUS_ENGINE_RING_RING_PLAN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/ring/channel.h"
#include "engine/ring/ring_shape.h"
#include "engine/ring/ring_slots.h"
#include "engine/ring/shard_map.h"
#include "kernels/base/tensor_view.h"
#include "kernels/ops/attention.h"

namespace annulus {

// One layer of one step.
struct RingLayer {
  uint64_t tag = 0;                    // unique per step and layer; the low 16 bits are zero
  int32_t window = 0;                  // in tokens; 0: full attention
  const RingShape* shape = nullptr;    // null: that of RingAttentionConfig
  std::span<const RingItem> items;     // those that attend in this layer, in plan order
  std::span<const ItemShards> shards;  // [item], for the layer's cache group
  ConstMatrixView query;               // [own rows, heads * k_dim], rotated
  ConstMatrixView key;                 // [own rows, kv_heads * k_dim], rotated
  ConstMatrixView value;               // [own rows, kv_heads * v_dim]
  // Whether own rows have keys and values that are yet to be stored where their pages are. If not,
  // an earlier layer stored them, and `key` and `value` are not read.
  bool stores = true;
  // Returns the part of an own page that belongs to the cache group's first layer; this layer's
  // part starts `page_offset` bytes later.
  std::function<std::byte*(int32_t page)> page_data;
  size_t page_offset = 0;
  AttentionState state;   // [own rows] output
  AttentionState served;  // rows computed for other ranks: [StateRows::served]
  // From one row of `served` to the next, in its `o` and `lse`; 0: they are dense. A peer may still
  // read what another peer's rows of the next layer have a place beside, so where layers differ in
  // shape these must be the same in all.
  int64_t served_columns = 0;
  int64_t served_heads = 0;
  AttentionState kept;  // own rows' states waiting to be merged: [StateRows::kept]
  RingSlots slots;      // destinations of copies; empty if the channel passes addresses
};

// What the layers of one cache group share in a step: which pages are sent, attended and received
// in each ring step, at which addresses, and which states merge when. Laid out once; each layer
// adds its page_offset. Layers that share a plan must have equal shapes, `stores`, items, shards
// and buffers.
//
// A plan points into the items, shards and buffers it was laid out from. RingAttention modifies it
// while a layer runs. Not thread-safe.
class RingPlan {
 public:
  RingPlan() = default;
  RingPlan(RingPlan&&) = default;
  RingPlan& operator=(RingPlan&&) = default;

  bool laid_out() const { return laid_out_; }
  // Call when shards have changed: the next layer lays the plan out again.
  void Clear() { laid_out_ = false; }

 private:
  friend class RingAttention;
  friend class RingPlanner;

  // Two states of the same rows; the second is merged into the first.
  using Merge = std::pair<AttentionState, AttentionState>;
  // A message to a peer, and the part sizes expected from the same peer in the same round.
  struct Message {
    RingParts parts;
    std::vector<size_t> expected;
    int64_t bytes = 0;  // of `parts`

    bool empty() const { return parts.empty() && expected.empty(); }
  };
  struct Queries {
    Message message;
    bool received = false;  // in this layer
    RingParts parts;        // the received parts, if `received`
  };
  // Attention items whose queries are one part of a peer's message. If `page` is set, the next two
  // parts are keys and values of sampled rows, to be written to that page from `slot` on.
  struct Served {
    size_t first_item = 0;
    size_t items = 0;
    size_t part = 0;
    std::byte* page = nullptr;
    int32_t slot = 0;
    int32_t rows = 0;
  };
  // A state that returns from a holder: either copied to `into` or merged into it; then `merges`
  // run.
  struct Returned {
    AttentionState into;
    bool merged = false;
    std::vector<Merge> merges;
  };
  // The exchange with one peer in a ring step.
  struct PeerStep {
    Message pages;                  // parts of the first layer
    std::vector<KvPageView> views;  // of the received pages, in the first layer
    std::vector<Served> served;
    Message states;
    std::vector<Returned> returned;
  };
  struct Step {
    std::vector<PeerStep> peers;              // [rank]
    std::vector<KvPageView> views;            // of own pages, in the first layer
    std::vector<AttentionItem> items;         // of the step's single attention call
    std::unique_ptr<AttentionLayout> layout;  // of that call, in all layers
    std::vector<uint8_t> own_pages;           // [item] whether it attends own pages
    std::vector<Merge> merges;                // after these items have been attended
  };

  bool laid_out_ = false;
  std::vector<Queries> queries_;  // [rank]
  std::vector<Step> steps_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_PLAN_H_
