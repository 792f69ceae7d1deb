#ifndef ANNULUS_ENGINE_RING_RING_ATTENTION_H_
#define ANNULUS_ENGINE_RING_RING_ATTENTION_H_

#include <span>
#include <vector>

#include "engine/base/heartbeat.h"
#include "engine/ring/ring_link.h"
#include "engine/ring/ring_plan.h"
#include "engine/ring/shard_map.h"
#include "engine/ring/work_timer.h"
#include "kernels/registry.h"

namespace annulus {

// Virtual shards (kernels/ops/shards.h) of `ranks` ranks with these kernels. 1 if they are not
// row_invariant: they sum in an order of their own, and states merge in the order of the ring.
inline int ShardsOf(const OpTable& ops, int ranks) {
  return ops.row_invariant ? ShardsFor(ranks) : 1;
}

// What stays the same over the life of a rank.
struct RingAttentionConfig {
  KvPageShape shape;
  size_t layer_page_bytes = 0;
  int heads = 0;
  float scale = 1;
  float soft_cap = 0;                         // of scores; 0: none
  int shards = 1;                             // see ShardsOf
  std::chrono::milliseconds timeout{30'000};  // longest silence of all ranks in a Receive
  // Of all ranks; beaten with each attention call, which the device follows: see WorkTimer::Follow.
  Heartbeat* heartbeat = nullptr;
};

// Rows of the states that the layers of a step need beside the result.
struct StateRows {
  int64_t served = 0;
  int64_t kept = 0;
};

// Exact attention of a step's rows over keys and values that are spread over ranks. Own rows of
// every item must already be in their pages, except a sampled row whose page is another rank's: its
// key and value travel with the query. Messages carry all items in plan order. Queries (pass-Q) go
// out at once to all who hold what they see; pages (pass-KV) go out one ring step ahead, into the
// slot that the step before does not read; states of served queries come back with each step. Ranks
// that hold nothing a row can see are left out by both sides.
//
// A holder attends rows once for each subtree of the merging tree that it has
// (kernels/ops/shards.h), and rows merge subtrees with their neighbours in the tree, never in the
// order of arrival. So a row's bits do not depend on the ring: not on its degree, the mode, or
// where pages lie, as long as each shard's pages lie on one rank.
//
// `served` states stay untouched until the same peer's next query for the same item has come in,
// which it sends only after it has merged the state; queries stay until their states are back.
// Run does not wait for the stream, but to stay close to what it does: see WorkTimer::Follow.
// Not thread-safe: one per rank. Any error must be followed by an abort of the channel.
class RingAttention {
 public:
  RingAttention(RingChannel& channel, Backend& backend, const OpTable& ops, Stream& stream,
                const RingAttentionConfig& config);

  // Notes in `items` how many states they have in the layers of one cache group. To be called for
  // each group of a step, then Reserve.
  static void Note(std::span<const ItemShards> shards, std::span<RingItem> items);
  // Rows of the states that any layer of the step needs, and sets where each item's are.
  static StateRows Reserve(std::span<RingItem> items);

  // What `layer` and others with its items, shards and buffers do, for Run. `plan` is laid out
  // anew.
  void LayOut(const RingLayer& layer, RingPlan& plan) const;
  // `plan`: laid out here unless it is. With one rank no layer behind the first takes memory from
  // the heap; with several their messages do.
  absl::Status Run(const RingLayer& layer, RingPlan& plan);
  // One layer by itself.
  absl::Status Run(const RingLayer& layer);

  // For what must be settled between ranks before a layer runs; its messages use tags with bit 15
  // set.
  RingLink& link() { return link_; }

  // Adds to the counters what is known once the stream is idle: seconds of its ops, and for how
  // long it stood still.
  absl::Status CountSeconds();
  // Since the last call. What CountSeconds was not called for is left out.
  RingCounters TakeCounters();

 private:
  class LayerRun;

  RingLink link_;
  Backend& backend_;
  const OpTable& ops_;
  Stream& stream_;
  const RingAttentionConfig config_;
  WorkTimer timer_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_ATTENTION_H_
