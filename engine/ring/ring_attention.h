#ifndef ANNULUS_ENGINE_RING_RING_ATTENTION_H_
#define ANNULUS_ENGINE_RING_RING_ATTENTION_H_

#include <span>
#include <vector>

#include "engine/base/heartbeat.h"
#include "engine/ring/ring_link.h"
#include "engine/ring/ring_plan.h"
#include "engine/ring/ring_round.h"
#include "engine/ring/shard_map.h"
#include "engine/ring/work_timer.h"
#include "kernels/registry.h"

namespace annulus {

// Number of virtual shards (kernels/ops/shards.h) for `ranks` ranks. It is 1 if the kernels are not
// row_invariant: their summation order varies, and states merge in ring order.
inline int ShardsOf(const OpTable& ops, int ranks) {
  return ops.row_invariant ? ShardsFor(ranks) : 1;
}

// What stays the same for the lifetime of a rank. The shape is that of layers that name no other.
struct RingAttentionConfig : RingShape {
  float soft_cap = 0;                         // limit of scores; 0: none
  int shards = 1;                             // see ShardsOf
  std::chrono::milliseconds timeout{30'000};  // longest Receive without progress on any rank
  // Shared by all ranks. RingAttention beats it after every attention call, so a rank that is still
  // computing is never mistaken for a hung one (WorkTimer::Follow keeps the host close to the
  // device).
  Heartbeat* heartbeat = nullptr;
};

inline const RingShape& ShapeOf(const RingLayer& layer, const RingAttentionConfig& config) {
  return layer.shape != nullptr ? *layer.shape : config;
}

// A state is the partial attention of a row over some of its keys, to be merged with others
// (AttentionState). This is how many rows of states the layers of a step need besides the result:
// `served` for rows computed for other ranks, `kept` for own rows' states that wait to be merged.
struct StateRows {
  int64_t served = 0;
  int64_t kept = 0;
};

// Exact attention of a step's rows over keys and values that are spread over ranks. Own rows are
// those that this rank computes. Before a call their keys and values must be in their pages, except
// for a sampled row whose page is on another rank: its key and value travel with the query.
//
// Messages carry all items in plan order. In pass-Q, queries go at the start to all ranks that hold
// keys they can see (the holders), and each step returns states. In pass-KV, pages go one ring step
// before they are needed, into the slot that the current step does not read. Ranks without visible
// keys are skipped by both sides.
//
// A holder attends rows once per subtree of the merging tree that it has (kernels/ops/shards.h),
// and subtrees merge with their neighbours in the tree, regardless of the order of arrival.
// Therefore a row's bits do not depend on the ring's degree, the mode, or where pages are, as long
// as each shard's pages are on one rank.
//
// `served` states stay untouched until the same peer's next query for the same item arrives, since
// the peer sends it only after merging the state. Queries stay until their states are back.
//
// Run does not wait for the stream, except to stay close to the device (WorkTimer::Follow). Not
// thread-safe; one instance per rank. After any error the channel must be aborted.
class RingAttention {
 public:
  RingAttention(RingChannel& channel, Backend& backend, const OpTable& ops, Stream& stream,
                const RingAttentionConfig& config);

  // Records in `items` how many states they need in the layers of one cache group. Call for each
  // cache group of a step, then call Reserve.
  static void Note(std::span<const ItemShards> shards, std::span<RingItem> items);
  // Assigns each item its rows in the state buffers. Returns how many rows any layer of the step
  // needs.
  static StateRows Reserve(std::span<RingItem> items);

  // Lays out `plan` for `layer` and all other layers that share its items, shards and buffers.
  void LayOut(const RingLayer& layer, RingPlan& plan) const;
  // Runs one layer. Lays out `plan` first unless that has been done. Only the first layer allocates
  // heap memory, unless the channel copies: then messages do in every layer.
  absl::Status Run(const RingLayer& layer, RingPlan& plan);
  // Runs a single layer with a plan of its own.
  absl::Status Run(const RingLayer& layer);

  // The link, for data that ranks must exchange before a layer runs. Such messages must set bit 15
  // of their tags.
  RingLink& link() { return link_; }

  // Adds the measurements that need an idle stream to the counters: the seconds of its ops, and how
  // long it was blocked.
  absl::Status CountSeconds();
  // Returns the counters accumulated since the previous call and resets them. Includes only work
  // that CountSeconds() has already accounted for.
  RingCounters TakeCounters();

 private:
  class LayerRun;

  RingLink link_;
  Backend& backend_;
  const OpTable& ops_;
  Stream& stream_;
  const RingAttentionConfig config_;
  WorkTimer timer_;
  RingRound round_;  // the one that is being made
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_ATTENTION_H_
