#include "engine/runner/work_shape.h"

#include <algorithm>
#include <vector>

#include "engine/ring/ring_attention.h"
#include "engine/runner/step/step_buffers.h"
#include "engine/sparse/block_ranking.h"
#include "kernels/base/activations.h"
#include "kernels/ops/experts.h"

namespace annulus {
namespace {

ProductShape ShapeOf(const PackedMatrix& matrix, int64_t rows) {
  return {rows, matrix.in_features, matrix.out_features, matrix.dtype};
}

// The products of a layer for at most `rows` rows.
void AddProducts(const RankModel& model, size_t layer, int64_t rows, int64_t wide_rows,
                 std::vector<ProductShape>& products) {
  const LayerWeights& weights = model.weights.layers[layer];
  ForEachOperation(model.graph[layer], [&](const Operation& operation) {
    for (const Product& product : operation.products) {
      // All experts of a layer have the same shapes.
      const bool of_expert = product.rows == LayerRows::kChoices;
      const LinearWeights& linear =
          product.WeightsIn(weights, of_expert ? &weights.experts.each.front() : &weights.mlp);
      const bool slices = product.rows == LayerRows::kSlices;
      ProductShape shape = ShapeOf(linear.weight, slices ? std::min(rows, wide_rows) : rows);
      if (!product.float_input) shape.activations = ActivationsOf(model.activations, shape.dtype);
      shape.bias = !linear.bias.empty();
      shape.accumulate = operation.accumulate;
      products.push_back(shape);
      if (!of_expert) continue;
      // Every row may choose the same expert; the choices of few rows are multiplied at once.
      shape.rows = std::min(rows, kMostChoosingRows) * model.config.experts.routing.chosen;
      shape.chosen = true;
      products.push_back(shape);
    }
  });
}

}  // namespace

WorkShape WorkShapeOf(const RankModel& model, const RankSetOptions& options,
                      const BackendCapabilities& device) {
  const KvGeometry geometry = GeometryOf(model);
  WorkShape shape;
  for (size_t layer = 0; layer < model.graph.size(); ++layer) {
    AddProducts(model, layer, options.rows_per_rank, device.wide_rows, shape.products);
  }
  if (model.config.layer_input_size > 0) {
    ProductShape inputs = ShapeOf(model.weights.layer_projection.weight,
                                  std::min<int64_t>(options.rows_per_rank, device.wide_rows));
    inputs.activations = ActivationsOf(model.activations, inputs.dtype);
    shape.products.push_back(inputs);
  }
  for (const LinearWeights& projection : model.weights.stream_projections) {
    shape.products.push_back(ShapeOf(projection.weight, options.rows_per_rank));
    shape.products.back().activations = ActivationsOf(model.activations, projection.weight.dtype);
  }
  for (const LinearWeights& projection : model.weights.stream_unprojections) {
    shape.products.push_back(ShapeOf(projection.weight, kLogitsRows));
    shape.products.back().activations = ActivationsOf(model.activations, projection.weight.dtype);
  }
  shape.products.push_back(ShapeOf(model.weights.head(), kLogitsRows));
  shape.rows = options.rows_per_rank;
  // A rank attends rows of its own or, item by item, of one of the others.
  shape.attended_rows = shape.rows * options.span.all;
  // The last chunk of a prompt and the row behind it, which is sampled, are two.
  shape.items = 2 * int64_t{options.engine.max_running};
  shape.pages = model.page_shape;
  shape.heads = WidestAttention(model.config).heads;
  shape.row_invariant = model.ops->row_invariant;
  shape.shards = ShardsOf(*model.ops, options.span.all);
  shape.named_pages = static_cast<int64_t>(options.engine.kv_memory_bytes / options.span.local /
                                           geometry.page_bytes());
  shape.lists = model.ops->block_scores != nullptr;
  shape.exact_rows = kProbeRows;
  shape.sampled_rows = kSampledRows;
  shape.vocabulary = model.config.vocabulary;
  if (options.engine.device_graphs) {
    shape.held_layers = model.layers();
    shape.held_pages = shape.named_pages * geometry.layers_per_page;
  }
  return shape;
}

}  // namespace annulus
