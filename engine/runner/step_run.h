#ifndef ANNULUS_ENGINE_RUNNER_STEP_RUN_H_
#define ANNULUS_ENGINE_RUNNER_STEP_RUN_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/runner/rank_state.h"
#include "engine/runner/step_buffers.h"

namespace annulus {

// Runs one plan on one rank, from token ids to sampled tokens, or some of its layers if the plan is
// a stretch of a suspended chunk. Made for one step and then discarded. Own rows are those that
// this rank computes.
class StepRun {
 public:
  StepRun(RankState& state, const StepPlan& plan)
      : state_(state),
        plan_(plan),
        stretch_(plan.stretch.value_or(Stretch{0, state.model().layers(), true})) {}

  absl::Status Run(RankResult& result);

 private:
  // Own rows [first, first + count), whose pages in one cache group are on this rank.
  struct AppendRun {
    int64_t first = 0;
    int64_t count = 0;
  };
  // Data that the layers of one cache group share in this step.
  struct GroupStep {
    std::vector<ItemShards> shards;  // [ring item]; for items that choose: the last layer's choice
    std::vector<ChoosingItem> choosing;
    std::vector<ChoosingItem> dilated;  // items whose coverage is sampled as well
    std::vector<AppendRun> appends;
    // [own row] first layer's part of the page; null: on another rank.
    std::vector<std::byte*> append_page;
    std::vector<std::byte*> layer_page;  // [own row] the current layer's part of the page
    std::vector<int32_t> append_slot;    // [own row] index of the token in that page
    RingPlan plan;                       // for all ring items; valid as long as `shards`
  };
  struct RopeAngles {
    MatrixView cosine, sine;  // [rows, pairs]
  };
  // Views of what TakeBuffers and TakeGated took.
  struct Buffers {
    MatrixView residual;  // [rows, hidden]
    MatrixView normed;    // [rows, hidden]
    MatrixView query, key, value;
    MatrixView gate, up;  // with the columns of the layer's gated block; used at a layer's end
    std::vector<RopeAngles> angles;  // [rope setting]
    AttentionState state, served, kept;
  };
  // For one layer's mixture of experts.
  struct ExpertBuffers : StepBuffers::Experts {
    MatrixView input;   // [rows, hidden]: the rows of one expert
    MatrixView output;  // [gated rows, hidden]
    MatrixView logits;  // [rows, experts]
  };

  // A row whose logits are needed. `on_device`: the op `sample` chooses its token.
  struct HeadRow {
    const PlanItem* item = nullptr;
    int64_t row = 0;
    bool on_device = false;
  };
  // Buffers for kLogitsRows rows.
  struct HeadBuffers {
    MatrixView normed;
    MatrixView logits;
    std::span<float> seen;  // [rows][vocabulary] logits as the host reads them, in place or copied
    std::span<int32_t> tokens;  // [rows] readable by host and device
    std::span<Candidate> workspace;
  };

  const RankModel& model() const { return state_.model(); }
  const ModelWeights& own_weights() const { return state_.weights(); }
  const RankSequence& sequence(size_t item) const {
    return state_.sequences.at(ring_plan_[item]->sequence);
  }
  const OpTable& ops() const { return state_.ops(); }
  int shards() const { return state_.config.shards; }
  Stream& stream() const { return state_.stream(); }

  absl::Status BeginGraph();
  absl::Status LaunchGraph();
  void ListRows();
  void ListRingItems();
  GroupStep BuildGroup(int group) const;
  // See BackendCapabilities.
  int64_t wide_rows() const { return state_.parts.backend->capabilities().wide_rows; }
  absl::Status TakePhase(StepBuffers::Phase phase);
  absl::Status TakeResidual();
  absl::Status TakeBuffers(const StateRows& states);
  absl::Status TakeGated();
  MatrixView WholeArray(LayerArray array);
  absl::Status Embed();
  absl::Status FillAngles(size_t rope);
  void Suspend();
  absl::Status Layer(int layer);
  absl::Status Prepare(int layer, const DeviceVector& norm, MatrixView values, int heads);
  absl::StatusOr<ConstMatrixView> BlockInput(const DeviceVector& norm, int64_t first, int64_t rows);
  absl::Status AddToResidual(const LinearWeights& weights, ConstMatrixView input, int64_t first,
                             const DeviceVector& post_norm);
  absl::Status FeedForward(int layer, int64_t rows);
  absl::Status Mlp(const LayerWeights& weights, int64_t first, int64_t rows);
  absl::Status Append(int layer);
  RingLayer MakeRingLayer(int layer, int64_t rows);
  RingPlan& PlanOf(int layer);
  size_t PageOffset(int layer) const;
  void LayOutAttention();
  absl::Status Attend(int layer, int64_t rows);
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
  absl::StatusOr<ConstMatrixView> Gated(const GatedWeights& weights, ConstMatrixView input);
  absl::Status Activate(MatrixView gate, ConstMatrixView up);
  void SortByExpert(int64_t rows);
  absl::Status Experts(int layer, ConstMatrixView input);
  absl::Status ExpertsOfFewRows(int layer, ConstMatrixView input, ConstMatrixView logits);
  absl::Status ExpertsOfManyRows(int layer, ConstMatrixView input, ConstMatrixView logits);
  LinearParams Product(const LinearWeights& weights, ConstMatrixView input, MatrixView output,
                       bool accumulate = false) const;
  absl::Status Linear(const LinearWeights& weights, ConstMatrixView input, MatrixView output,
                      bool accumulate = false);
  void WillRead(std::initializer_list<const LinearWeights*> weights);
  absl::Status Norm(const DeviceVector& weight, ConstMatrixView input, MatrixView output,
                    bool accumulate = false);
  absl::Status Head(RankResult& result);
  std::vector<HeadRow> ListHeadRows() const;
  absl::StatusOr<HeadBuffers> TakeHeadBuffers();
  absl::Status HeadLogits(std::span<const HeadRow> rows, const HeadBuffers& buffers);
  absl::Status SampleOrCopy(std::span<const HeadRow> rows, const HeadBuffers& buffers);
  Sampler& SamplerOf(const PlanItem& item) const;
  bool ChosenOnDevice(const PlanItem& item) const;
  void UseRow(const HeadRow& row, size_t index, const HeadBuffers& buffers, RankResult& result);

  RankState& state_;
  const StepPlan& plan_;
  const Stretch stretch_;  // the layers to run

  std::vector<int32_t> row_token_;          // [own row]
  std::vector<int32_t> row_position_;       // [own row]
  std::vector<int64_t> item_first_;         // [plan item] first own row
  int64_t active_rows_ = 0;                 // own rows that need the last layer: a prefix
  size_t active_items_ = 0;                 // ring items that need the last layer: a prefix
  std::vector<const PlanItem*> ring_plan_;  // [ring item]
  std::vector<RingItem> ring_items_;
  std::vector<GroupStep> groups_;
  RingPlan last_plan_;  // for the last layer's items, if they are fewer
  std::optional<StepBuffers> taken_;
  Buffers buffers_;
  ExpertBuffers experts_;
  std::vector<LayerAttention> attention_;
  int64_t next_row_ = -1;             // the next guessed row that counts: see UseRow
  std::unique_ptr<StepGraph> graph_;  // of a step recorded as a graph; null: none, or launched
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_STEP_RUN_H_
