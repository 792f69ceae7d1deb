#include "engine/model/layer_graph.h"

#include <cmath>
#include <utility>

#include "kernels/base/check.h"

namespace annulus {
namespace {

// Lists the operations of one layer.
class LayerLister {
 public:
  LayerLister(const ModelConfig& config, const LayerConfig& layer)
      : config_(config), layer_(layer) {}

  LayerGraph List() {
    SetColumns();
    if (config_.streams.used()) ListPrediction();
    ListAttention();
    if (layer_.experts) {
      ListExperts();
    } else {
      ListBlock();
    }
    ListEnding();
    return std::move(graph_);
  }

 private:
  using enum LayerArray;
  using enum LayerRows;
  using Kind = Operation::Kind;
  using Operations = std::vector<Operation>;

  void SetColumns() {
    const int64_t hidden = config_.hidden_size;
    const AttentionShape& shape = layer_.attention;
    const int64_t experts = config_.experts.count;
    const int64_t every = BlockSize(config_, layer_);
    const int64_t block = layer_.experts ? config_.experts.intermediate_size : every;
    const int64_t shared = layer_.experts ? every : 0;
    const int64_t input = config_.layer_input_size;
    // In the order of LayerArray.
    graph_.columns = {hidden,
                      hidden,
                      shape.query_columns(),
                      shape.key_columns(),
                      shape.value_columns(),
                      shape.attended_columns(),
                      block,
                      block,
                      shared,
                      shared,
                      1,
                      experts,
                      hidden,
                      hidden,
                      hidden,
                      hidden,
                      input,
                      input * std::ssize(config_.layers),
                      hidden * config_.streams.count,
                      hidden,
                      config_.streams.count,
                      config_.laurel_rank};
  }

  // Rows that attention needs the layer's input of.
  LayerRows InputRows() const { return layer_.has_own_keys() ? kAll : kWanted; }

  // What is predicted of the streams before the layer; the residual becomes the active one.
  void ListPrediction() {
    ANNULUS_CHECK(config_.layer_input_size > 0 && Has(LayerNorm::kLayerInput) &&
                  Has(LayerNorm::kStreamRouter) && Has(LayerNorm::kAttentionOutput) &&
                  !config_.traits.parallel_blocks && !layer_.experts);
    AddStreamLogits(kActiveStream, InputRows(), graph_.attention);
    graph_.attention.push_back({Kind::kPredict, kStreams, kResidual, InputRows()});
  }

  void AddStreamLogits(LayerArray input, LayerRows rows, Operations& list) {
    list.push_back({Kind::kNorm, input, kNormed, rows, false, LayerNorm::kStreamRouter});
    list.push_back(Products(kNormed, {{&LayerWeights::stream_router, nullptr, kStreamLogits, rows,
                                       /*float_input=*/true}}));
  }

  void ListAttention() {
    ANNULUS_CHECK(!config_.traits.parallel_blocks ||
                  (Has(LayerNorm::kAttentionInput) && !Has(LayerNorm::kBlockInput) &&
                   !Has(LayerNorm::kAttentionOutput) && !layer_.experts));
    Operations& list = graph_.attention;
    const LayerArray input = AddInput(LayerNorm::kAttentionInput, InputRows(), list);
    std::vector<Product> products;
    if (layer_.has_own_keys()) {
      products.push_back({&LayerWeights::key, nullptr, kKey, kAll});
      if (!layer_.values_are_keys) {
        products.push_back({&LayerWeights::value, nullptr, kValue, kAll});
      }
    }
    products.push_back({&LayerWeights::query, nullptr, kQuery, kWanted});
    list.push_back(Products(input, std::move(products)));
    if (config_.laurel_rank > 0) {
      list.push_back(Products(input, {{&LayerWeights::laurel_left, nullptr, kLaurel, kWanted}}));
    }
    if (layer_.has_own_keys()) {
      ANNULUS_CHECK(config_.traits.norms_values || !layer_.values_are_keys);
      if (config_.traits.norms_values) {
        list.push_back({Kind::kNorm, layer_.values_are_keys ? kKey : kValue, kValue, kAll, false,
                        LayerNorm::kValue});
      }
      AddRotated(kKey, LayerNorm::kKey, kAll);
    }
    AddRotated(kQuery, LayerNorm::kQuery, kWanted);
    list.push_back({Kind::kAttend, kQuery, kAttended, kWanted});
    AddToResidual(kAttended, {&LayerWeights::output, nullptr, kResidual, kWanted},
                  LayerNorm::kAttentionOutput, list);
    if (config_.laurel_rank > 0) AddLaurel(list);
  }

  // Attention's input is normed once more: what was normed first has been overwritten by now.
  void AddLaurel(Operations& list) {
    ANNULUS_CHECK(config_.streams.used());  // or the residual were not what it was
    list.push_back(
        {Kind::kNorm, kActiveStream, kResidual, kWanted, true, LayerNorm::kAttentionInput});
    AddToResidual(kLaurel, {&LayerWeights::laurel_right, nullptr, kResidual, kWanted},
                  LayerNorm::kLaurel, list);
    list.push_back({.kind = Kind::kScale,
                    .input = kResidual,
                    .output = kResidual,
                    .rows = kWanted,
                    .factor = std::sqrt(0.5f)});
  }

  void ListBlock() {
    const LayerArray input = config_.traits.parallel_blocks
                                 ? kNormed  // attention left its input there
                                 : AddInput(LayerNorm::kBlockInput, kSlices, graph_.block);
    AddGated(input, kGate, kUp, kSlices, graph_.block);
    AddToResidual(kGate, {nullptr, &GatedWeights::down, kResidual, kSlices},
                  LayerNorm::kBlockOutput, graph_.block);
  }

  void ListExperts() {
    if (Has(LayerNorm::kExpertsInput)) return ListExpertsBeside();
    const LayerArray input = AddInput(LayerNorm::kBlockInput, kWanted, graph_.routing);
    if (BlockSize(config_, layer_) > 0) ListShared(input);
    ListChosen(input);
  }

  // The block and the experts read the residual, and each norms its own way.
  void ListExpertsBeside() {
    graph_.mixture = kMixture;
    graph_.routing.push_back({Kind::kClear, kMixture, kMixture, kWanted});
    ListChosen(AddInput(LayerNorm::kRouterInput, kWanted, graph_.routing));
    Operations& shared = graph_.shared;
    AddGated(AddInput(LayerNorm::kBlockInput, kSlices, shared), kSharedGate, kSharedUp, kSlices,
             shared);
    shared.push_back(
        Products(kSharedGate, {{nullptr, &GatedWeights::down, kBlockOutput, kSlices}}));
    shared.push_back(
        {Kind::kNorm, kBlockOutput, kBlockOutput, kSlices, false, LayerNorm::kSharedOutput});
    AddInput(LayerNorm::kExpertsInput, kSlices, shared);
    graph_.ending.push_back(
        {Kind::kNorm, kMixture, kBlockOutput, kWanted, true, LayerNorm::kExpertsOutput});
    graph_.ending.push_back(
        {Kind::kNorm, kBlockOutput, kResidual, kWanted, true, LayerNorm::kBlockOutput});
  }

  // The router and the experts' blocks.
  void ListChosen(LayerArray input) {
    graph_.routing.push_back(Products(
        input, {{&LayerWeights::router, nullptr, kRouterLogits, kWanted, /*float_input=*/true}}));
    AddGated(kExpertInput, kGate, kUp, kChoices, graph_.block);
    graph_.block.push_back(
        Products(kGate, {{nullptr, &GatedWeights::down, kExpertOutput, kChoices}}));
  }

  void ListEnding() {
    Operations& list = graph_.ending;
    if (config_.streams.used()) {
      AddStreamLogits(kResidual, kWanted, list);
      list.push_back({Kind::kCorrect, kResidual, kNormed, kWanted});
      AddLayerGate(kNormed, list);
      list.push_back(
          Products(kLayerGate, {{&LayerWeights::input_projection, nullptr, kNormed, kWanted}}));
      list.push_back({Kind::kSpread, kNormed, kStreams, kWanted, true, LayerNorm::kLayerInput});
    } else if (config_.layer_input_size > 0) {
      AddLayerGate(kResidual, list);
      AddToResidual(kLayerGate, {&LayerWeights::input_projection, nullptr, kResidual, kWanted},
                    LayerNorm::kLayerInput, list);
    }
    if (config_.traits.scaled_layers) {
      list.push_back({Kind::kScale, kResidual, kResidual, kWanted});
    }
  }

  void AddLayerGate(LayerArray input, Operations& list) const {
    list.push_back(Products(input, {{&LayerWeights::input_gate, nullptr, kLayerGate, kWanted}}));
    list.push_back({Kind::kActivate, kLayerInputs, kLayerGate, kWanted});
  }

  void ListShared(LayerArray input) {
    AddGated(input, kSharedGate, kSharedUp, kSlices, graph_.shared);
    const bool gated = config_.experts.shared_gate;
    graph_.shared.push_back(Products(
        kSharedGate, {{nullptr, &GatedWeights::down, gated ? kExpertOutput : kResidual, kSlices}},
        /*accumulate=*/!gated));
    if (!gated) return;
    graph_.routing.push_back(
        Products(input, {{&LayerWeights::shared_gate, nullptr, kSharedLogit, kWanted,
                          /*float_input=*/true}}));
    graph_.shared.push_back({Kind::kAddGated, kExpertOutput, kResidual, kSlices, true});
  }

  bool Has(LayerNorm norm) const { return !config_.traits.norms[norm].empty(); }

  // What attention or the gated block reads: the residual, normed if the family norms before it.
  LayerArray AddInput(LayerNorm norm, LayerRows rows, Operations& list) const {
    if (!Has(norm)) return kResidual;
    list.push_back({Kind::kNorm, kResidual, kNormed, rows, false, norm});
    return kNormed;
  }

  // Norm and rotation of queries or keys.
  void AddRotated(LayerArray array, LayerNorm norm, LayerRows rows) {
    Operations& list = graph_.attention;
    const bool rotates = layer_.rope != kNoRope;
    const bool rotates_first = config_.traits.norms_after_rope;
    if (rotates && rotates_first) list.push_back({Kind::kRotate, array, array, rows});
    if (Has(norm)) list.push_back({Kind::kNorm, array, array, rows, false, norm});
    if (rotates && !rotates_first) list.push_back({Kind::kRotate, array, array, rows});
  }

  // gate = activation(gate(input), up(input)), or activation(gate(input)).
  void AddGated(LayerArray input, LayerArray gate, LayerArray up, LayerRows rows,
                Operations& list) const {
    if (!HasGate(config_)) {
      list.push_back(Products(input, {{nullptr, &GatedWeights::gate, gate, rows}}));
      list.push_back({Kind::kActivate, gate, gate, rows});
      return;
    }
    list.push_back(Products(input, {{nullptr, &GatedWeights::gate, gate, rows},
                                    {nullptr, &GatedWeights::up, up, rows}}));
    if (layer_.cutoff.has_value()) list.push_back({Kind::kCutOff, gate, gate, rows});
    list.push_back({Kind::kActivate, up, gate, rows});
  }

  // residual += the product, normed first if the family norms after attention and the gated block.
  // These have read their input by then, so kNormed is free.
  void AddToResidual(LayerArray input, Product product, LayerNorm norm, Operations& list) const {
    const bool normed = Has(norm);
    product.output = normed ? kNormed : kResidual;
    list.push_back(Products(input, {product}, /*accumulate=*/!normed));
    if (!normed) return;
    list.push_back({Kind::kNorm, kNormed, kResidual, product.rows, true, norm});
  }

  static Operation Products(LayerArray input, std::vector<Product> products,
                            bool accumulate = false) {
    return {Kind::kProducts, input, input, kWanted, accumulate, {}, std::move(products)};
  }

  const ModelConfig& config_;
  const LayerConfig& layer_;
  LayerGraph graph_;
};

}  // namespace

const ExpertMatrices& Product::MatricesIn(const ExpertsWeights& experts) const {
  if (gated == &GatedWeights::gate) return experts.gate;
  return gated == &GatedWeights::up ? experts.up : experts.down;
}

bool BeginsWithGatedBlock(std::span<const Operation> operations) {
  using Kind = Operation::Kind;
  if (operations.size() < kGatedBlockOperations) return false;
  const Operation& first = operations[0];
  const Operation& activation = operations[1];
  const Operation& last = operations[2];
  if (first.kind != Kind::kProducts || activation.kind != Kind::kActivate ||
      last.kind != Kind::kProducts) {
    return false;
  }
  const LayerArray result = first.products.front().output;
  return InsideBlock(result) && !first.accumulate && first.products.size() <= 2 &&
         activation.output == result && activation.input == first.products.back().output &&
         last.input == result && last.products.size() == 1;
}

std::vector<LayerGraph> LayerGraphs(const ModelConfig& config) {
  std::vector<LayerGraph> layers;
  layers.reserve(config.layers.size());
  for (const LayerConfig& layer : config.layers) {
    layers.push_back(LayerLister(config, layer).List());
  }
  return layers;
}

WeightCounts WeightsPerRow(const ModelConfig& config, const LayerGraph& layer) {
  WeightCounts weights;
  ForEachOperation(layer, [&](const Operation& operation) {
    for (const Product& product : operation.products) {
      const double matrix =
          double{1} * layer.columns_of(operation.input) * layer.columns_of(product.output);
      const int32_t times = product.rows == LayerRows::kChoices ? config.experts.routing.chosen : 1;
      (product.rows == LayerRows::kAll ? weights.every_row : weights.wanted_row) += matrix * times;
    }
  });
  return weights;
}

double MultipliesPerPair(const AttentionShape& shape) {
  return static_cast<double>(shape.query_columns() + shape.attended_columns());
}

std::vector<LayerMultiplies> MultipliesOfLayers(const ModelConfig& config) {
  const std::vector<LayerGraph> graph = LayerGraphs(config);
  std::vector<LayerMultiplies> layers(graph.size());
  for (int i = 0; i < LastLayerWithKeys(config); ++i) {
    const WeightCounts weights = WeightsPerRow(config, graph[i]);
    const double pair = MultipliesPerPair(config.layers[i].attention);
    const int32_t window = config.layers[i].window;
    layers[i].row = weights.every_row + weights.wanted_row + pair * window;
    if (window == 0) layers[i].pair = pair;
  }
  return layers;
}

double PairsInRows(std::span<const LayerMultiplies> layers) {
  double pairs = 0;
  double row = 0;
  for (const LayerMultiplies& layer : layers) {
    pairs += layer.pair;
    row += layer.row;
  }
  return row > 0 ? pairs / row : 0;
}

}  // namespace annulus
