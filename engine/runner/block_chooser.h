#ifndef ANNULUS_ENGINE_RUNNER_BLOCK_CHOOSER_H_
#define ANNULUS_ENGINE_RUNNER_BLOCK_CHOOSER_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/ring/ring_attention.h"
#include "engine/sparse/block_ranking.h"
#include "engine/sparse/page_summaries.h"

namespace annulus {

// What the memory of messages needs that outlives a layer. A peer may still read what was sent: the
// chooser empties `layer` once all peers have answered, and the rank empties `step` when the next
// step begins, which is after every rank has ended this one.
struct ChoiceMessages {
  std::deque<DeviceBuffer> layer;  // of the host, and read by ops: Backend::AllocateHost
  std::deque<std::vector<std::byte>> step;
};

// One item of a step whose block lists are settled layer by layer, before attending: because its
// policy looks at content, or because its coverage is sampled.
struct ChoosingItem {
  size_t item = 0;  // index among the step's ring items
  SequenceId sequence = 0;
  std::shared_ptr<const AttentionPolicy> policy;
  bool report_lists = false;
  // Everything that its rows may attend; for the items' cache group without a window.
  ItemShards candidates;
  // [layer] of the sequence's own pages here; null where no summary is needed.
  std::vector<PageSummaries>* summaries = nullptr;
};

// How the rows of an item choose.
enum class ChoiceKind : uint8_t {
  kNone,     // the item attends all, or its lists are known before the step
  kLists,    // a content-free policy's lists, coverage sampled
  kRanking,  // estimated by antidiagonals or from means of keys
  kGroups,   // hierarchical
  kTop,      // top_pages
};
// `begin`, `end`: the item's rows.
ChoiceKind HowToChoose(const AttentionPolicy& policy, bool sampled, int32_t begin, int32_t end);
// Whether the item's rows follow the policy's content-free lists.
bool UsesPattern(const AttentionPolicy& policy, bool sampled, int32_t begin, int32_t end);

// One layer of one step, as its choice sees it.
struct ChoiceLayer {
  uint64_t tag = 0;  // as RingLayer::tag
  int layer = 0;
  std::span<const RingItem> items;  // those that attend in this layer
  std::span<ItemShards> shards;     // [item]: what is chosen is written here
  ConstMatrixView query;            // [own rows, heads * k_dim], dense; a device's
  std::function<std::byte*(int32_t page)> page_data;  // this layer's part of an own page
  std::span<const float> sinks;                       // [heads], the host's; empty: none
};

// Settles the block lists of a layer on all ranks of each item's ring: queries travel to the ranks
// that hold the keys (XAttention, arXiv 2503.16428: all of them; else one pooled row for each
// query block), their scores come back, each rank chooses for its own rows, the ranks agree on the
// contract, and lists of the chosen blocks go to their holders, who then send nothing else.
//
// The contract (AttentionPolicy::coverage): 16 seeded rows are scored exactly, block by block. All
// ranks add up what they would cover under a ladder of ever larger tau, and take the first that is
// enough for the mean over rows and heads; the last step of the ladder is all blocks.
class BlockChooser {
 public:
  BlockChooser(RingLink& link, Backend& backend, const OpTable& ops, Stream& stream,
               const RingAttentionConfig& config, ChoiceMessages& messages)
      : link_(link),
        backend_(backend),
        ops_(ops),
        stream_(stream),
        config_(config),
        messages_(messages) {}

  // `choosing`: ascending item; those beyond layer.items are left out. Appends what was chosen for
  // own rows to `report`.
  absl::Status Run(const ChoiceLayer& layer, std::span<const ChoosingItem> choosing,
                   std::vector<LayerAttention>& report);

 private:
  class LayerChoice;

  RingLink& link_;
  Backend& backend_;
  const OpTable& ops_;
  Stream& stream_;
  const RingAttentionConfig& config_;
  ChoiceMessages& messages_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_BLOCK_CHOOSER_H_
