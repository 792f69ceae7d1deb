#include "bench/model/model_work.h"

#include <algorithm>
#include <vector>

#include "engine/model/layer_graph.h"
#include "engine/model/weights/matrix_reader.h"
#include "kernels/base/quantize.h"

namespace annulus::bench {
namespace {

// Weights that a row meets in all layers.
double SizeOfLayers(const ModelConfig& config) {
  double weights = 0;
  for (const LayerGraph& layer : LayerGraphs(config)) {
    const WeightCounts size = WeightsPerRow(config, layer);
    weights += size.every_row + size.wanted_row;
  }
  return weights;
}

double HeadSize(const ModelConfig& config) {
  return double{1} * config.hidden_size * config.vocabulary;
}

// Keys that the row at `position` sees.
double KeysSeen(const LayerConfig& layer, int64_t position, double density) {
  const double causal = static_cast<double>(position + 1);
  return layer.window > 0 ? std::min<double>(causal, layer.window) : causal * density;
}

// Sum of KeysSeen over positions [0, rows).
double PairsSeen(const LayerConfig& layer, int64_t rows, double density) {
  const double n = static_cast<double>(rows);
  if (layer.window == 0) return n * (n + 1) / 2 * density;
  const double w = std::min<double>(layer.window, n);
  return w * (w + 1) / 2 + (n - w) * w;
}

double FlopsPerPair(const LayerConfig& layer) { return 2 * MultipliesPerPair(layer.attention); }

// A code and its share of a group's scale and minimum. One scale per row is not worth counting.
double BytesPerWeight(DType dtype) {
  if (const int64_t group = QuantizedGroup(dtype); group > 0) {
    return static_cast<double>(QuantizedRowBytes(dtype, group) +
                               QuantizedScaleBytes(dtype, group)) /
           static_cast<double>(group);
  }
  return static_cast<double>(DTypeSize(dtype));
}

double KvBytesPerTokenOf(const LayerConfig& layer, DType kv) {
  const AttentionShape& shape = layer.attention;
  const double scale = kv == DType::kI8 ? 2 : 0;  // bf16, per token and head, for each of both
  return shape.kv_heads *
         ((shape.k_dim + shape.v_dim) * static_cast<double>(DTypeSize(kv)) + 2 * scale);
}

}  // namespace

double PrefillFlops(const ModelConfig& config, int64_t tokens, double density) {
  const double n = static_cast<double>(tokens);
  const std::vector<LayerGraph> graph = LayerGraphs(config);
  double flops = 2 * HeadSize(config);
  const auto lean = static_cast<size_t>(LastLayerWithKeys(config));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const bool last = i >= lean;
    const WeightCounts size = WeightsPerRow(config, graph[i]);
    flops += 2 * size.every_row * n + 2 * size.wanted_row * (last ? 1 : n);
    flops += FlopsPerPair(layer) *
             (last ? KeysSeen(layer, tokens - 1, density) : PairsSeen(layer, tokens, density));
  }
  return flops;
}

double DecodeFlops(const ModelConfig& config, int64_t depth, double density) {
  double flops = 2 * (HeadSize(config) + SizeOfLayers(config));
  for (const LayerConfig& layer : config.layers) {
    flops += FlopsPerPair(layer) * KeysSeen(layer, depth, density);
  }
  return flops;
}

double DecodeBytes(const ModelConfig& config, int64_t depth, DType weights, DType kv,
                   double density) {
  double bytes = HeadSize(config) * BytesPerWeight(MatrixDType(weights, "lm_head.weight")) +
                 SizeOfLayers(config) * BytesPerWeight(weights);
  for (const LayerConfig& layer : config.layers) {
    bytes += KvBytesPerTokenOf(layer, kv) * KeysSeen(layer, depth, density);
  }
  return bytes;
}

double KvBytesPerToken(const ModelConfig& config, DType kv) {
  double bytes = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.has_own_keys()) bytes += KvBytesPerTokenOf(layer, kv);
  }
  return bytes;
}

}  // namespace annulus::bench
