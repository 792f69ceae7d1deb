#ifndef ANNULUS_ENGINE_RUNNER_CHOICE_CHOICE_H_
#define ANNULUS_ENGINE_RUNNER_CHOICE_CHOICE_H_

// Types shared by the steps of choosing blocks: see BlockChooser.
//
// "Own" means: of this rank. A holder is a rank of the item's ring that has keys which some rows
// may attend; a runner is one that computes rows. Runners send queries to the holders
// (ChoiceQuery), and holders return scores.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/memory/step_arena.h"
#include "engine/ring/ring_attention.h"
#include "engine/sparse/block_ranking.h"
#include "engine/sparse/gates.h"
#include "engine/sparse/page_summaries.h"
#include "engine/sparse/policy_type.h"

namespace annulus {

// Buffers of messages, sent and received. A peer may read them after the sender's call has
// returned. So the chooser clears `layer` only once all peers have answered, and the rank clears
// both when the next step begins, since by then every rank has ended this one and flushed.
struct ChoiceMessages {
  std::deque<DeviceBuffer> layer;  // host memory readable by ops: Backend::AllocateHost
  std::deque<std::vector<std::byte>> step;
  std::deque<DeviceBuffer> evidence;  // as `layer`, but kept like `step`: see EvidenceMasses
};

// Returns how rows [begin, end) of an item choose their blocks under `policy`; kNone: they attend
// everything, or the policy's content-free lists (UsesPattern). `sampled`: PlanItem::sampled.
ChoiceKind HowToChoose(const AttentionPolicy& policy, bool sampled, int32_t begin, int32_t end);
// Whether the item's rows use the policy's content-free lists.
bool UsesPattern(const AttentionPolicy& policy, bool sampled, int32_t begin, int32_t end);

// Summaries of a rank's own pages of a sequence in one layer. Each member is filled only if a
// policy needs it.
struct LayerSummaries {
  PageSummaries bounds{PageSummaries::Kind::kBounds};
  PageSummaries means{PageSummaries::Kind::kMean};
  GateKeys gates;
};

// The heads of a layer that follow the same policy.
struct ChoosingPart {
  std::shared_ptr<const AttentionPolicy> policy;
  // Lists of a content-free policy if these rows use them; otherwise null.
  std::shared_ptr<const BlockPattern> pattern;
  std::vector<bool> heads;  // [kv_heads]
};

// An item whose blocks are chosen layer by layer before attending, because its policy looks at
// content, its coverage is sampled, or its heads follow different policies.
struct ChoosingItem {
  size_t item = 0;  // index among the step's ring items
  SequenceId sequence = 0;
  // At least one, with equal block sizes; each head is in exactly one.
  std::vector<ChoosingPart> parts;
  bool report_lists = false;
  // Everything its rows may attend, in the cache group without a window.
  ItemShards candidates;
  std::vector<LayerSummaries>* summaries = nullptr;  // [layer] of own pages; see RankSequence
  SummaryKinds summary_kinds;                        // of the sequence
  std::span<const int32_t> summary_pages;            // own pages that store the summaries
  bool samples_answer = false;  // whether a sampled item's rows have their coverage sampled too

  int32_t block() const { return parts.front().policy->block; }
};

// What choosing needs to know of one layer of one step.
struct ChoiceLayer {
  uint64_t tag = 0;  // equals RingLayer::tag
  int layer = 0;
  std::span<const RingItem> items;  // those that attend in this layer
  std::span<ItemShards> shards;     // [item] output: the chosen blocks
  ConstMatrixView query;            // [own rows, heads * k_dim], dense, device memory
  std::function<std::byte*(int32_t page)> page_data;  // this layer's part of an own page
  std::span<const float> sinks;                       // [heads] host memory; empty: none
};

// What stays the same for the lifetime of a rank.
struct ChoiceContext {
  RingLink& link;
  Backend& backend;
  const OpTable& ops;
  Stream& stream;
  const RingAttentionConfig& config;
  ChoiceMessages& messages;
  StepArena& arena;                       // device memory; every choice returns what it takes
  const AttentionGates* gates = nullptr;  // of the model; null: none

  int heads() const { return config.heads; }
  int kv_heads() const { return config.shape.kv_heads; }
  int group() const { return heads() / kv_heads(); }
  int64_t columns() const { return int64_t{heads()} * config.shape.k_dim; }
  // Allocates memory for the layer's messages that host and ops can access.
  absl::StatusOr<std::byte*> KeepBytes(size_t bytes) const;
  absl::StatusOr<std::span<float>> Keep(size_t count) const;
  // Runs block_scores for one item with the scale and cap of the model's attention.
  absl::Status ScoreBlocks(const BlockScoresItem& item, int32_t block_tokens, int32_t stride) const;
};

// Rows that this rank has scored along antidiagonals: see Antidiagonals.
struct ScoredRows {
  const float* rows = nullptr;  // [positions, heads * k_dim]
  std::span<float> sums;        // [row groups][heads] over own keys
  std::span<float> kept;        // [row groups][heads][own blocks], in the arena; empty: not kept
};

// One kind of score that the rows of an item request from the holders of their keys.
struct ChoiceQuery {
  enum class Ask : uint8_t {
    kExact,         // exact scores over all keys
    kKept,          // exact scores over the keys that `branches` keep; with `kept`, a single score
                    // over all keys in the blocks of these lists
    kAntidiagonal,  // sums along antidiagonals with `stride`: see Antidiagonals
    kBounds,        // from the bounds of each page's keys
    kMeans,         // from the mean of each page's keys
    kGates          // from gates
  };

  Ask kind = Ask::kExact;
  int32_t stride = 1;
  std::vector<DilatedBranch> branches;
  const BlockPattern* kept = nullptr;
  // [ring index] What is scored: for kExact, kKept and kAntidiagonal, positions of rows; otherwise
  // query blocks, each by the mean of its rows.
  std::vector<std::vector<int32_t>> positions;
  std::vector<int64_t> groups;  // [ring index] number of score rows
  ConstMatrixView own;          // [own positions, heads * k_dim]
  // [ring index] How many lists of numbers are returned: one for each score row and query head; for
  // kAntidiagonal, one for each query block and kv head.
  std::vector<int64_t> lists;
  std::optional<BlockScores> scores;         // for own rows, once received
  std::vector<std::span<const float>> owed;  // [ring index] to return: computed here for others
  // Only for kAntidiagonal.
  std::vector<ScoredRows> scored;     // [ring index] computed here
  std::span<float> sums;              // [row groups][heads] for own rows, over all keys
  std::optional<BlockMasses> masses;  // for own rows, once received; used instead of scores

  bool antidiagonal() const { return kind == Ask::kAntidiagonal; }
};

// A part of an item while its blocks are being chosen.
struct PartChoice {
  const ChoosingPart* part = nullptr;
  ChoiceKind kind = ChoiceKind::kNone;
  std::optional<ChoiceQuery> estimate;
  std::optional<BlockRanking> ranking;
  // [rung] The values of tau to try, ascending. Without a contract: the policy's tau alone. With
  // one: its coverage, then greater values up to 1. The value 0 stands for the policy's own lists,
  // and 1 for all blocks.
  std::vector<double> ladder;
  size_t rung = 0;              // the one chosen
  std::vector<double> covered;  // [rung][query head] coverage, summed over own sampled rows
  // [position of a sampled row][rung] coverage, summed over the part's query heads. Has own rows,
  // and those of all ranks once they have told each other.
  std::map<int32_t, std::vector<double>> sampled;
  BlockPattern pattern;  // the choice for own rows; has all heads, but only this part's are valid

  const AttentionPolicy& policy() const { return *part->policy; }
  // Whether a contract binds the part.
  bool bound() const { return policy().coverage > 0; }
  // Whether the chosen rung takes all blocks.
  bool all() const { return ladder[rung] >= 1; }
  // How many blocks to take at `at_rung`, in the order of the ranking.
  int32_t Count(size_t q, int kv_head, size_t at_rung) const;
};

// An item while its blocks are being chosen.
struct Choice {
  const ChoosingItem* choosing = nullptr;
  const RingItem* ring = nullptr;
  int32_t block = 0;                       // tokens per block; all block indices here are of such
  std::vector<int32_t> query_blocks;       // of own rows
  std::vector<std::vector<int32_t>> held;  // [ring index] blocks there that own rows may attend
  // [ring index] own blocks that rows of that index may attend.
  std::vector<std::vector<int32_t>> seen;
  std::vector<std::vector<int32_t>> held_page_blocks;  // [ring index] block of each page
  std::optional<ChoiceQuery> probes;                   // requests exact scores of sampled rows
  std::vector<PartChoice> parts;
  BlockPattern pattern;  // the choice of all parts, for own rows

  int index() const { return ring->index; }
  int64_t own_rows() const { return ring->own_rows(); }
  const std::vector<int32_t>& positions(int i) const { return ring->positions[i]; }
  const PartChoice& part_of(int kv_head) const;
};

// Asks: whether own rows request scores from the rank with ring index `holder`. Owes: whether this
// rank must return scores to the rank with ring index `runner`.
bool Asks(const Choice& item, const ChoiceQuery& query, int holder);
bool Owes(const Choice& item, const ChoiceQuery& query, int runner);

// Prepares what `choosing` requests in the layer, and from which ranks. `block`: tokens of the
// blocks that are scored, the policy's or a multiple of them.
Choice MakeChoice(const ChoiceContext& context, const ChoiceLayer& layer,
                  const ChoosingItem& choosing, int32_t block);

// The blocks that contain `positions`: distinct, ascending.
std::vector<int32_t> BlocksOf(std::span<const int32_t> positions, int32_t block_tokens);

// The rank's ring index; -1 if it is not in the item's ring.
int IndexOf(const RingItem& item, int rank);

// Calls visit(item, query, ring index of `peer`) for every query of each item whose ring includes
// `peer`. Covers both directions: what the peer's rows request from this rank, and what own rows
// request from the peer.
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

// Reinterprets floats as a message part, and back.
inline RingPart PartOf(std::span<const float> data) {
  return {reinterpret_cast<const std::byte*>(data.data()), data.size_bytes()};
}
inline std::span<const float> FloatsOf(const RingPart& part) {
  return {reinterpret_cast<const float*>(part.data), part.bytes / sizeof(float)};
}

// Exchanges one round of messages for a layer: see RingLink::Exchange. `number`, below 0x8000,
// distinguishes the layer's rounds.
template <class Give, class Expect, class Take>
absl::Status ChoiceRound(const ChoiceContext& context, const ChoiceLayer& layer, uint64_t number,
                         const Give& give, const Expect& expect, const Take& take) {
  const auto place = [&](size_t bytes) { return context.KeepBytes(bytes); };
  const absl::StatusOr<int64_t> sent =
      context.link.Exchange({layer.tag | 0x8000 | number, give, expect, place, take});
  if (!sent.ok()) return sent.status();
  context.link.counters().bytes_estimate += *sent;
  return absl::OkStatus();
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_CHOICE_CHOICE_H_
