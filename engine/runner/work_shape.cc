#include "engine/runner/work_shape.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/ring/ring_attention.h"
#include "engine/runner/step_run.h"
#include "engine/sparse/block_ranking.h"
#include "kernels/base/activations.h"

namespace annulus {
namespace {

// The products of a rank's steps. A matrix that is not there belongs to a layer of another kind.
class StepProducts {
 public:
  StepProducts(const RankModel& model, int64_t rows) : model_(model), rows_(rows) {}

  void AddLayer(const LayerWeights& layer, int64_t wide_rows) {
    const bool added = !model_.config.post_norms;
    for (const LinearWeights* each : {&layer.query, &layer.key, &layer.value}) Add(*each, rows_);
    Add(layer.output, rows_, added);
    AddMatrix(layer.router.weight, rows_);
    const int64_t wide = std::min(rows_, wide_rows);
    Add(layer.mlp.gate, wide);
    Add(layer.mlp.up, wide);
    Add(layer.mlp.down, wide, added);
    if (!layer.experts.each.empty()) AddExperts(layer.experts.each.front());
  }

  // Inputs are taken as they are.
  void AddMatrix(const PackedMatrix& matrix, int64_t rows) {
    Push({rows, matrix.in_features, matrix.out_features, matrix.dtype});
  }

  std::vector<ProductShape> Take() { return std::move(products_); }

 private:
  void Add(const LinearWeights& weights, int64_t rows, bool accumulate = false,
           bool chosen = false) {
    const PackedMatrix& matrix = weights.weight;
    Push({rows, matrix.in_features, matrix.out_features, matrix.dtype,
          ActivationsOf(model_.activations, matrix.dtype), !weights.bias.empty(), accumulate,
          chosen});
  }

  // Every row may choose the same expert; few rows' choices are multiplied at once.
  void AddExperts(const GatedWeights& expert) {
    const int64_t few = std::min(rows_, kMostChoosingRows) * model_.config.experts.chosen;
    for (const LinearWeights* each : {&expert.gate, &expert.up, &expert.down}) {
      Add(*each, rows_);
      Add(*each, few, /*accumulate=*/false, /*chosen=*/true);
    }
  }

  void Push(const ProductShape& shape) {
    if (shape.out > 0) products_.push_back(shape);
  }

  const RankModel& model_;
  const int64_t rows_;
  std::vector<ProductShape> products_;
};

}  // namespace

WorkShape WorkShapeOf(const RankModel& model, const RankSetOptions& options,
                      const BackendCapabilities& device) {
  StepProducts products(model, options.rows_per_rank);
  for (const LayerWeights& layer : model.weights.layers) {
    products.AddLayer(layer, device.wide_rows);
  }
  products.AddMatrix(model.weights.head(), kLogitsRows);
  const KvGeometry geometry = GeometryOf(model);
  WorkShape shape;
  shape.products = products.Take();
  shape.rows = options.rows_per_rank;
  // A rank attends rows of its own or, item by item, of one of the others.
  shape.attended_rows = shape.rows * options.ranks;
  // The last chunk of a prompt and the row behind it, which is sampled, are two.
  shape.items = 2 * int64_t{options.sequences};
  shape.pages = model.page_shape;
  shape.heads = model.config.heads;
  shape.row_invariant = model.ops->row_invariant;
  shape.shards = ShardsOf(*model.ops, options.ranks);
  shape.named_pages =
      static_cast<int64_t>(options.kv_memory_bytes / options.ranks / geometry.page_bytes());
  shape.lists = model.ops->block_scores != nullptr;
  shape.exact_rows = kProbeRows;
  shape.sampled_rows = kLogitsRows;
  shape.vocabulary = model.config.vocabulary;
  if (options.graphs) {
    shape.held_layers = model.layers();
    shape.held_pages = shape.named_pages * geometry.layers_per_page;
  }
  return shape;
}

}  // namespace annulus
