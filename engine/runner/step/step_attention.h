#ifndef ANNULUS_ENGINE_RUNNER_STEP_STEP_ATTENTION_H_
#define ANNULUS_ENGINE_RUNNER_STEP_STEP_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/runner/rank_state.h"
#include "engine/runner/step/step_buffers.h"
#include "engine/runner/step/step_rows.h"

namespace annulus {

// Attention in the layers of one step on one rank: stores the own rows' keys and values in their
// pages, and attends the keys that each item sees and its policy keeps. Call ReserveStates, then
// LayOut, then Run for each layer. Everything passed to the constructor and to LayOut must outlive
// the object.
class StepAttention {
 public:
  StepAttention(RankState& state, const StepPlan& plan, const StepRows& rows);

  // Returns how many rows of states the buffers must hold besides the result.
  StateRows ReserveStates() { return RingAttention::Reserve(items_); }

  // Lays out the layers' exchanges, except those whose block lists are only known in the layer
  // itself. The buffers of StepBuffers::Phase::kStep must have been taken.
  void LayOut(StepBuffers& buffers);

  // Stores the layer's keys and values of all own rows in their pages, then writes kAttended of the
  // first `rows` own rows.
  absl::Status Run(int layer, int64_t rows);

  // What policies attended, in all layers so far.
  std::vector<LayerAttention>& reports() { return reports_; }
  // What rows attended that give evidence, in all layers so far.
  std::vector<EvidenceItem>& evidence() { return evidence_; }

 private:
  // Own rows [first, first + count), whose pages in one cache group are on this rank.
  struct AppendRun {
    int64_t first = 0;
    int64_t count = 0;
  };
  // Data that the layers of one cache group share in this step.
  struct GroupStep {
    // [ring item] For items that choose, what they chose in the previous layer of the group.
    std::vector<ItemShards> shards;
    std::vector<ChoosingItem> choosing;  // items that choose their blocks layer by layer
    std::vector<ChoosingItem> sampled;   // other items whose coverage is sampled
    std::vector<AppendRun> appends;
    // [own row] first layer's part of the page; null: on another rank.
    std::vector<std::byte*> append_page;
    std::vector<std::byte*> layer_page;  // [own row] the current layer's part of the page
    std::vector<int32_t> append_slot;    // [own row] index of the token in that page
    // For all ring items, valid as long as `shards`: of layers that store keys, and of others.
    RingPlan plan, reading;
    // The same for the items that lean layers have, if they are fewer.
    RingPlan lean_plan, lean_reading;
  };

  const RankModel& model() const { return state_.model(); }
  const RankSequence& sequence(size_t item) const {
    return state_.sequences.at(plan_items_[item]->sequence);
  }
  // Whether the layer has only the items whose logits are wanted.
  bool IsLean(int layer) const { return layer >= model().first_lean; }
  GroupStep& GroupOf(int layer) { return groups_[model().group_of_layer[layer]]; }

  bool Stores(int layer) const {
    return model().config.layers[static_cast<size_t>(layer)].has_own_keys();
  }
  void ListItems(const StepPlan& plan);
  GroupStep BuildGroup(int group) const;
  void ListAppends(int group, GroupStep& step) const;
  size_t PageOffset(int layer) const;
  RingLayer MakeRingLayer(int layer, int64_t rows);
  RingPlan& PlanOf(int layer);
  void LayOutFirst(int layer);
  absl::Status Append(int layer);

  // step_choice.cc: what policies decide.
  void SetLists(size_t index, int layer);
  ItemShards AllPages(size_t index, int group) const;
  void NoteAllPages(int group);
  void ListChoosing(int layer, GroupStep& step) const;
  void TakeUpLayer(int layer);
  bool Chooses(std::span<const SequencePart> parts, const RingItem& item) const;
  bool Samples(std::span<const SequencePart> parts, const RingItem& item) const;
  absl::Status LookOn(int layer, const RingLayer& ring);
  absl::Status Choose(int layer, int64_t rows, const RingLayer& ring);
  void CountPairs(int layer, size_t items);
  void ListEvidence();
  absl::Status AddEvidence(int layer, const RingLayer& ring);

  RankState& state_;
  const StepRows& rows_;
  const uint64_t first_tag_;  // of layer 0
  StepBuffers* buffers_ = nullptr;
  std::vector<const PlanItem*> plan_items_;  // [ring item]
  std::vector<RingItem> items_;              // those whose ring this rank is in
  size_t active_items_ = 0;                  // ring items that need lean layers: a prefix
  std::vector<GroupStep> groups_;            // [cache group]
  std::vector<LayerAttention> reports_;
  std::vector<EvidenceItem> evidence_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_STEP_STEP_ATTENTION_H_
