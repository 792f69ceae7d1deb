#ifndef ANNULUS_ENGINE_RUNNER_STEP_STEP_LAYERS_H_
#define ANNULUS_ENGINE_RUNNER_STEP_STEP_LAYERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/runner/rank_state.h"
#include "engine/runner/step/step_attention.h"
#include "engine/runner/step/step_buffers.h"
#include "engine/runner/step/step_rows.h"

namespace annulus {

// Runs the layers of one step on one rank: walks each layer's graph (engine/model/layer_graph.h)
// and hands its operations to the kernels. Everything passed to the constructor must outlive it;
// the buffers of StepBuffers::Phase::kStep must have been taken.
class StepLayers {
 public:
  StepLayers(RankState& state, const StepPlan& plan, const StepRows& rows, StepBuffers& buffers,
             StepAttention& attention)
      : state_(state), plan_(plan), rows_(rows), buffers_(buffers), attention_(attention) {}

  // Fills what the first layer reads (PassedOn) of all rows. Call before layer 0.
  absl::Status Embed();
  // Fills kLayerInputs, if layers have inputs. Call before the first layer of a step or stretch.
  absl::Status FillInputs();
  // Fills the tables that layers rotate by. Call before the first layer of a step or stretch.
  absl::Status FillAngles();
  // Runs layers [first, end).
  absl::Status Run(int first, int end);

 private:
  // The rows that a walk over operations computes, and the weights of its gated block.
  struct Pass {
    int layer = 0;
    int64_t first = 0;                    // the own row that is the first of `rows`
    int64_t rows = 0;                     // of every LayerRows but kAll
    int64_t all = 0;                      // of kAll
    const GatedWeights* block = nullptr;  // see Product::gated
    float* expert_input = nullptr;        // kExpertInput
    bool chosen = false;                  // multiply by all chosen experts at once
  };

  const RankModel& model() const { return state_.model(); }
  const LayerGraph& graph(int layer) const { return model().graph[static_cast<size_t>(layer)]; }
  const LayerWeights& weights(int layer) const {
    return state_.weights().layers[static_cast<size_t>(layer)];
  }
  const OpTable& ops() const { return state_.ops(); }
  Stream& stream() const { return *state_.parts.stream; }

  absl::Status EmbedRows(std::span<const int32_t> tokens, MatrixView into);
  absl::Status FillInputs(int64_t first, int64_t rows);
  absl::Status FillAngles(size_t rope);
  absl::Status Layer(int layer, bool is_last);
  absl::Status Slices(std::span<const Operation> block, int layer, int64_t rows);
  absl::Status Walk(std::span<const Operation> operations, const Pass& pass);
  absl::Status RunOne(const Operation& operation, const Pass& pass);
  absl::Status Norm(const Operation& operation, const Pass& pass);
  absl::Status Multiply(const Operation& operation, const Pass& pass);
  absl::Status GatedBlock(std::span<const Operation> block, const Pass& pass);
  absl::Status MultiplyChosen(const Operation& operation, const Pass& pass);
  absl::Status Rotate(const Operation& operation, const Pass& pass);
  absl::Status Activate(const Operation& operation, const Pass& pass);
  void WillRead(std::span<const Operation> operations, const Pass& pass);
  int64_t RowsOf(LayerRows rows, const Pass& pass) const;
  MatrixView View(LayerArray array, int64_t rows, const Pass& pass);
  Activations ActivationsFor(const Product& product, DType dtype) const;
  using ProductParams = std::array<LinearParams, Operation::kMostProducts>;
  std::span<const LinearParams> ListProducts(const Operation& operation, const Pass& pass,
                                             ProductParams& into);

  // A mixture of experts (step_experts.cc). experts(): null if all are in memory.
  ExpertCache* experts() const { return state_.weights().expert_cache.get(); }
  absl::Status Experts(int layer, int64_t rows);
  absl::Status ExpertsOfFewRows(Pass pass);
  absl::Status ExpertsOfManyRows(Pass pass);
  absl::Status AddGated(const Operation& operation, const Pass& pass);
  RouteParams Route(const Pass& pass, std::span<int32_t> chosen, std::span<float> shares);

  // Several residuals of a row (step_streams.cc).
  absl::Status EmbedStreams();
  absl::Status Predict(const Operation& operation, const Pass& pass);
  absl::Status Correct(const Operation& operation, const Pass& pass);
  absl::Status Spread(const Operation& operation, const Pass& pass);
  MatrixView StreamOf(int n, int64_t first, int64_t rows);

  RankState& state_;
  const StepPlan& plan_;
  const StepRows& rows_;
  StepBuffers& buffers_;
  StepAttention& attention_;
  bool met_experts_ = false;
  bool waited_ = false;  // for an expert
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_STEP_STEP_LAYERS_H_
