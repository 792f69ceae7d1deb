#ifndef ANNULUS_ENGINE_RUNNER_CHOICE_H_
#define ANNULUS_ENGINE_RUNNER_CHOICE_H_

// What the steps of choosing blocks share: see BlockChooser.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/memory/step_arena.h"
#include "engine/ring/ring_attention.h"
#include "engine/sparse/block_ranking.h"
#include "engine/sparse/gates.h"
#include "engine/sparse/page_summaries.h"

namespace annulus {

// What the memory of messages needs that outlives a layer. A peer may still read what was sent: the
// chooser empties `layer` once all peers have answered, and the rank empties `step` when the next
// step begins, which is after every rank has ended this one.
struct ChoiceMessages {
  std::deque<DeviceBuffer> layer;  // of the host, and read by ops: Backend::AllocateHost
  std::deque<std::vector<std::byte>> step;
};

// How the rows of an item choose.
enum class ChoiceKind : uint8_t {
  kNone,     // the item attends all, or its lists are known before the step
  kLists,    // a content-free policy's lists, coverage sampled
  kRanking,  // estimated by antidiagonals, from means of keys, or by gates
  kGroups,   // hierarchical
  kTop,      // top_pages
};
// `begin`, `end`: the item's rows.
ChoiceKind HowToChoose(const AttentionPolicy& policy, bool sampled, int32_t begin, int32_t end);
// Whether the item's rows follow the policy's content-free lists.
bool UsesPattern(const AttentionPolicy& policy, bool sampled, int32_t begin, int32_t end);

// What a rank knows of the pages of a sequence in one layer; each is filled where a policy asks.
struct LayerSummaries {
  PageSummaries bounds{PageSummaries::Kind::kBounds};
  PageSummaries means{PageSummaries::Kind::kMean};
  GateKeys gates;
};

// Some heads of a layer, which follow one policy.
struct ChoosingPart {
  std::shared_ptr<const AttentionPolicy> policy;
  // Lists of a policy that does not look at content, if its rows follow them.
  std::shared_ptr<const BlockPattern> pattern;
  std::vector<bool> heads;  // [kv_heads]
};

// One item of a step whose block lists are settled layer by layer, before attending: because a
// policy looks at content, because its coverage is sampled, or because heads follow several.
struct ChoosingItem {
  size_t item = 0;  // index among the step's ring items
  SequenceId sequence = 0;
  std::vector<ChoosingPart> parts;  // at least one, with blocks of one size; each head is in one
  bool report_lists = false;
  // Everything that its rows may attend; for the items' cache group without a window.
  ItemShards candidates;
  std::vector<LayerSummaries>* summaries = nullptr;  // [layer] of the sequence's own pages here
  SummaryKinds summary_kinds;                        // of the sequence
  std::span<const int32_t> summary_pages;            // own pages that hold them
  bool samples_answer = false;  // whether the coverage of a row of an answer is sampled too

  int32_t block() const { return parts.front().policy->block; }
};

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

// What stays the same over the life of a rank.
struct ChoiceContext {
  RingLink& link;
  Backend& backend;
  const OpTable& ops;
  Stream& stream;
  const RingAttentionConfig& config;
  ChoiceMessages& messages;
  StepArena& arena;                       // of the device; what a choice takes it gives back
  const AttentionGates* gates = nullptr;  // of the model; null: none

  int heads() const { return config.heads; }
  int kv_heads() const { return config.shape.kv_heads; }
  int group() const { return heads() / kv_heads(); }
  int64_t columns() const { return int64_t{heads()} * config.shape.k_dim; }
  // Memory for the layer's messages, which host and ops reach.
  absl::StatusOr<std::span<float>> Keep(size_t count) const;
  // block_scores of one item by the scale and cap of the model's attention.
  absl::Status ScoreBlocks(const BlockScoresItem& item, int32_t block_tokens, int32_t stride) const;
};

// Rows whose scores along antidiagonals were added up here: see Antidiagonals.
struct ScoredRows {
  const float* rows = nullptr;  // [positions, heads * k_dim]
  std::span<float> sums;        // [row groups][heads] over own keys
  std::span<float> kept;        // [row groups][heads][own blocks], of the arena; empty: not kept
};

// One kind of scores that the rows of an item want.
struct ChoiceQuery {
  // Exact scores, of all keys or of those that `branches` keep; sums along antidiagonals of
  // `stride`; the bound or the mean of each page; gates.
  enum class Ask : uint8_t { kExact, kKept, kAntidiagonal, kBounds, kMeans, kGates };

  Ask kind = Ask::kExact;
  int32_t stride = 1;
  std::vector<DilatedBranch> branches;
  std::vector<std::vector<int32_t>> positions;  // [ring index] of the rows that are scored
  std::vector<int64_t> groups;                  // [ring index] rows of scores
  ConstMatrixView own;                          // [own positions, heads * k_dim]
  std::vector<int64_t> lists;                   // [ring index] of scores, or masses, that return
  std::optional<BlockScores> scores;            // of own rows, once they are back
  std::vector<std::span<const float>> owed;     // [ring index] computed here for others
  // Of antidiagonals.
  std::vector<ScoredRows> scored;     // [ring index] computed here
  std::span<float> sums;              // [row groups][heads] of own rows over all keys
  std::optional<BlockMasses> masses;  // of own rows, once they are back; instead of scores

  bool antidiagonal() const { return kind == Ask::kAntidiagonal; }
};

// A part of an item while its lists are settled.
struct PartChoice {
  const ChoosingPart* part = nullptr;
  ChoiceKind kind = ChoiceKind::kNone;
  std::optional<ChoiceQuery> estimate;
  std::optional<BlockRanking> ranking;
  std::vector<double> ladder;  // [rung] tau; 0: the policy's own lists; the last may be 1: all
  size_t rung = 0;
  std::vector<double> covered;  // [rung][head] sums over own probes
  BlockPattern pattern;         // of own rows, once chosen, for all heads; only its own count

  const AttentionPolicy& policy() const { return *part->policy; }
  bool bound() const { return policy().coverage > 0; }
  bool all() const { return ladder[rung] >= 1; }
  // How many blocks of the ranking's order a rung takes.
  int32_t Count(size_t q, int kv_head, size_t at_rung) const;
};

// An item while its lists are settled.
struct Choice {
  const ChoosingItem* choosing = nullptr;
  const RingItem* ring = nullptr;
  std::vector<int32_t> query_blocks;       // of own rows
  std::vector<std::vector<int32_t>> held;  // [ring index] candidate blocks of own rows there
  std::vector<std::vector<int32_t>> seen;  // [ring index] own blocks for rows of that index
  std::vector<std::vector<int32_t>> held_page_blocks;  // [ring index] block of each page
  std::optional<ChoiceQuery> probes;                   // exact scores of sampled rows
  std::vector<PartChoice> parts;
  BlockPattern pattern;  // of own rows, once all parts have chosen

  int32_t block() const { return choosing->block(); }
  int index() const { return ring->index; }
  int64_t own_rows() const { return ring->own_rows(); }
  const std::vector<int32_t>& positions(int i) const { return ring->positions[i]; }
  const PartChoice& part_of(int kv_head) const;
};

// Whether own rows of an item ask `holder`, and whether this rank answers those of `runner`: ring
// indices.
bool Asks(const Choice& item, const ChoiceQuery& query, int holder);
bool Owes(const Choice& item, const ChoiceQuery& query, int runner);

// What `choosing` asks of whom in the layer.
Choice MakeChoice(const ChoiceContext& context, const ChoiceLayer& layer,
                  const ChoosingItem& choosing);

// The blocks of rows, each once, ascending.
std::vector<int32_t> BlocksOf(std::span<const int32_t> positions, int32_t block_tokens);

// The ring index of a rank; -1: not in the item's ring.
int IndexOf(const RingItem& item, int rank);

// Visits all queries of the items whose ring `peer` is in, with its ring index: those that its rows
// put to this rank's pages and own rows to its.
template <class Visit>
void ForEachQuery(std::span<Choice> choices, int peer, const Visit& visit) {
  for (Choice& item : choices) {
    const int other = IndexOf(*item.ring, peer);
    if (other < 0) continue;
    if (item.probes.has_value()) visit(item, *item.probes, other);
    for (PartChoice& part : item.parts) {
      if (part.estimate.has_value()) visit(item, *part.estimate, other);
    }
  }
}

// Floats as a part of a message.
inline RingPart PartOf(std::span<const float> data) {
  return {reinterpret_cast<const std::byte*>(data.data()), data.size_bytes()};
}
inline std::span<const float> FloatsOf(const RingPart& part) {
  return {reinterpret_cast<const float*>(part.data), part.bytes / sizeof(float)};
}

// One round of messages of a layer; `number` tells it from the layer's others.
template <class Give, class Expect, class Take>
absl::Status ChoiceRound(const ChoiceContext& context, const ChoiceLayer& layer, uint64_t number,
                         const Give& give, const Expect& expect, const Take& take) {
  const absl::StatusOr<int64_t> sent =
      context.link.Exchange({layer.tag | 0x8000 | number, give, expect, take});
  if (!sent.ok()) return sent.status();
  context.link.counters().bytes_estimate += *sent;
  return absl::OkStatus();
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_CHOICE_H_
