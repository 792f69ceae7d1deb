#ifndef ANNULUS_ENGINE_MODEL_LAYER_GRAPH_H_
#define ANNULUS_ENGINE_MODEL_LAYER_GRAPH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/model/weights/weights.h"

// The layers of a decoder as data: which operations run in which order, with which weights, on
// which arrays. Steps run these lists, and everything that must know in advance what a step does
// reads them too: the memory of its arrays, the workspace of its kernels, the bench's count of
// multiplications. To add a kind of layer, change LayerGraphs; only a new Operation::Kind also
// needs code that runs it.

namespace annulus {

// A float32 array [rows, columns] that operations pass to each other.
enum class LayerArray : uint8_t {
  kResidual,      // [hidden]; the only one that outlives a layer, but for kStreams
  kNormed,        // [hidden]
  kQuery,         // [heads * k_dim]
  kKey,           // [kv_heads * k_dim]
  kValue,         // [kv_heads * v_dim]
  kAttended,      // [heads * v_dim]
  kGate,          // [intermediate] of the layer's block, or of one expert
  kUp,            // like kGate
  kSharedGate,    // [shared_size]; of the block that layers with experts have beside them
  kSharedUp,      // like kSharedGate
  kSharedLogit,   // [1]
  kRouterLogits,  // [experts]
  kExpertInput,   // [hidden]
  kExpertOutput,  // [hidden]
  kBlockOutput,   // [hidden]; of a block and of experts beside it, normed each and together
  kMixture,       // [hidden]; what chosen experts add up to, where that is normed
  kLayerGate,     // [layer_input_size]
  kLayerInputs,   // [layers * layer_input_size]; of all layers, filled before the first
  kStreams,       // [streams * hidden]; of StreamsConfig, where it outlives a layer, not kResidual
  kActiveStream,  // [hidden]; the part of kStreams that layers compute, in its memory
  kStreamLogits,  // [streams]
  kLaurel,        // [laurel_rank]
};
inline constexpr size_t kLayerArrays = 22;

// Whether the array is used only inside a gated block. Row 0 is then the first row that the block
// computes, not the step's first row.
constexpr bool InsideBlock(LayerArray array) {
  return array == LayerArray::kGate || array == LayerArray::kUp ||
         array == LayerArray::kSharedGate || array == LayerArray::kSharedUp;
}

// Which rows an operation computes.
enum class LayerRows : uint8_t {
  kAll,      // every row, since later steps attend its key and value
  kWanted,   // from LastLayerWithKeys on only rows whose logits are wanted, before it every row
  kSlices,   // the wanted rows, at most BackendCapabilities::wide_rows at a time
  kChoices,  // one row for each pair of a wanted row and an expert that it chose: expert by expert,
             // or, for at most kMostChoosingRows rows, all pairs at once
};

// A multiplication by a matrix: of the layer (`own`), or of a gated block (`gated`). The block is
// LayerWeights::mlp, or each expert if the rows are kChoices.
struct Product {
  LinearWeights LayerWeights::*own = nullptr;
  LinearWeights GatedWeights::*gated = nullptr;
  LayerArray output = LayerArray::kResidual;
  LayerRows rows = LayerRows::kWanted;
  bool float_input = false;  // ignores RankModel::activations

  // `block`: where `gated` is found; may be null if `own` is set.
  const LinearWeights& WeightsIn(const LayerWeights& layer, const GatedWeights* block) const {
    return own != nullptr ? layer.*own : block->*gated;
  }
  // The matrices of all experts; requires `gated`.
  const ExpertMatrices& MatricesIn(const ExpertsWeights& experts) const;
};

struct Operation {
  enum class Kind : uint8_t {
    kNorm,      // output = norm of the input, by ModelConfig::norm; heads by themselves where
                // FamilyTraits says so
    kProducts,  // `products`, all of the same input
    kRotate,    // rotates by the layer's rope, in place: the input is the output
    kAttend,    // stores kKey and kValue in their pages, if the layer has its own; output =
                // attention of kQuery
    kActivate,  // output = activation(output, input), which are the same array if blocks have no
                // gate; of kLayerInputs the layer's part
    kAddGated,  // output += sigmoid(kSharedLogit) * input
    kClear,     // output = 0
    kScale,     // output *= `factor`, or LayerWeights::host_scale if that is 0
    kCutOff,    // the layer's CutOffParams on the output
    kPredict,   // PredictStreamsParams by kStreamLogits: the output is the active stream
    kCorrect,   // CorrectStreamsParams by kStreamLogits, where the input was computed: the output
                // is what the layer's own input meets
    kSpread,    // every stream but the first += norm of the input
  };
  // At most as many products as Stream::WillRead takes ranges.
  static constexpr size_t kMostProducts = Stream::kMostRanges;

  Kind kind = Kind::kNorm;
  LayerArray input = LayerArray::kResidual;
  LayerArray output = LayerArray::kResidual;  // of kProducts: see Product::output
  LayerRows rows = LayerRows::kWanted;        // of kProducts: see Product::rows
  bool accumulate = false;                    // adds to the output instead of replacing it
  LayerNorm norm = {};                        // of kNorm: whose weights
  std::vector<Product> products = {};
  float factor = 0;  // of kScale
};

// The operations of a whole gated block, which a table may run as one op (OpTable::gated_block):
// the products of its input, their activation, and the product of that. Nothing after them reads
// the arrays in between.
inline constexpr size_t kGatedBlockOperations = 3;
// Whether `operations` begin with them.
bool BeginsWithGatedBlock(std::span<const Operation> operations);

// One layer: the lists run one after the other.
struct LayerGraph {
  std::vector<Operation> attention;  // ends by adding to the residual
  std::vector<Operation> routing;    // ends with kRouterLogits; empty if the layer has no experts
  // Of a layer with experts, the block that every row meets, for each slice of rows: ends by adding
  // to the residual, or with kBlockOutput and what the experts read. Empty if there is none.
  std::vector<Operation> shared;
  // The gated block, for each slice of rows, ends by adding to the residual. That of experts goes
  // from kExpertInput to kExpertOutput; whoever runs it chooses experts by the router's logits,
  // fills kExpertInput and adds kExpertOutput to `mixture`.
  std::vector<Operation> block;
  LayerArray mixture = LayerArray::kResidual;
  // What follows the block.
  std::vector<Operation> ending;

  // Columns of each array that the layer's operations use.
  std::array<int64_t, kLayerArrays> columns{};

  int64_t columns_of(LayerArray array) const { return columns[static_cast<size_t>(array)]; }
};

// What layers pass to the next.
constexpr LayerArray PassedOn(const ModelConfig& config) {
  return config.streams.used() ? LayerArray::kStreams : LayerArray::kResidual;
}

// The graph of each layer. Depends on the configuration alone.
std::vector<LayerGraph> LayerGraphs(const ModelConfig& config);

// Calls visit(operation) for every operation of a layer, in order.
template <class Visit>
void ForEachOperation(const LayerGraph& layer, const Visit& visit) {
  for (const auto* list :
       {&layer.attention, &layer.routing, &layer.shared, &layer.block, &layer.ending}) {
    for (const Operation& operation : *list) visit(operation);
  }
}

// Weights by which a layer multiplies a row. Of a mixture of experts a row meets the router and
// those that it chose.
struct WeightCounts {
  double every_row = 0;
  double wanted_row = 0;  // LayerRows::kWanted
};
WeightCounts WeightsPerRow(const ModelConfig& config, const LayerGraph& layer);

// Multiplications that attention of this shape takes for a pair of a row and a key: for the score
// and the weighted value.
double MultipliesPerPair(const AttentionShape& shape);

// Multiplications that a layer takes for a row of a prompt: by weights, and, with a window, for its
// attention as if the window were full; and for each pair of a row and a key that it may see,
// without a window. Both are 0 from LastLayerWithKeys on, where most rows of a prompt need only
// its keys and values.
struct LayerMultiplies {
  double row = 0;
  double pair = 0;
};
// [layer].
std::vector<LayerMultiplies> MultipliesOfLayers(const ModelConfig& config);

// What a pair of a row and a key costs in all these layers, divided by what a row costs otherwise.
// 0 if only the last has full attention.
double PairsInRows(std::span<const LayerMultiplies> layers);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_LAYER_GRAPH_H_
