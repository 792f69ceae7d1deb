#ifndef ANNULUS_TESTS_ENGINE_MODEL_PLAIN_FORWARD_H_
#define ANNULUS_TESTS_ENGINE_MODEL_PLAIN_FORWARD_H_

// A decoder of Llama's kind (other families have no second implementation here) in the plainest
// loops, straight from a ModelConfig and a TensorSource: no kernels, no pages, no cache. It agrees
// with the goldens of Transformers, and so is an oracle for whatever reads the same tensors. Sums
// are taken in float64. Slow: for tiny models.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/files/tensor_source.h"
#include "engine/model/model_config.h"

namespace annulus::testing {

class PlainForward {
 public:
  // How often the row counts the key, asked of layers without a window.
  using Mask = std::function<int(int64_t layer, int64_t head, int64_t row, int64_t key)>;

  // Rounds a head's key or value, in place, as it is stored.
  using Storage = std::function<void(float* row, int64_t dim)>;

  // Both must outlive this. No mask: rows attend all keys up to their own. No storage: keys and
  // values stay as they are.
  PlainForward(const ModelConfig& config, const TensorSource& source, Mask mask = nullptr,
               Storage storage = nullptr)
      : config_(config), source_(source), mask_(std::move(mask)), storage_(std::move(storage)) {}

  // Logits at every position, [ids.size(), vocabulary].
  std::vector<float> Logits(const std::vector<int32_t>& ids) const {
    const std::vector<float> embedding = Tensor("model.embed_tokens.weight");
    const auto hidden = static_cast<size_t>(config_.hidden_size);
    std::vector<float> x;
    for (const int32_t id : ids) {
      const auto row = embedding.begin() + static_cast<int64_t>(id) * config_.hidden_size;
      x.insert(x.end(), row, row + config_.hidden_size);
    }
    for (size_t layer = 0; layer < config_.layers.size(); ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      layer_ = static_cast<int64_t>(layer);
      Add(x, Attention(prefix + "self_attn.", Norm(x, prefix + "input_layernorm.weight"),
                       config_.layers[layer]));
      Add(x, Mlp(prefix + "mlp.", Norm(x, prefix + "post_attention_layernorm.weight")));
    }
    x = Norm(x, "model.norm.weight");
    return Product(x, hidden, config_.tie_word_embeddings ? embedding : Tensor("lm_head.weight"),
                   {});
  }

 private:
  std::vector<float> Tensor(const std::string& name) const {
    return ReadAsFloat(source_, name).value();
  }

  static void Add(std::vector<float>& x, const std::vector<float>& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  std::vector<float> Norm(std::vector<float> x, const std::string& name) const {
    const std::vector<float> weight = Tensor(name);
    for (size_t row = 0; row < x.size(); row += weight.size()) {
      double sum = 0;
      for (size_t i = 0; i < weight.size(); ++i) sum += double{x[row + i]} * x[row + i];
      const double root =
          std::sqrt(sum / static_cast<double>(weight.size()) + double{config_.norm.epsilon});
      for (size_t i = 0; i < weight.size(); ++i) {
        x[row + i] = static_cast<float>(x[row + i] / root * weight[i]);
      }
    }
    return x;
  }

  // x [rows, in] times the transpose of weight [out, in], plus bias [out] where there is one.
  static std::vector<float> Product(const std::vector<float>& x, size_t in,
                                    const std::vector<float>& weight,
                                    const std::vector<float>& bias) {
    std::vector<float> y;
    for (size_t row = 0; row < x.size(); row += in) {
      for (size_t out = 0; out < weight.size() / in; ++out) {
        double sum = bias.empty() ? 0 : bias[out];
        for (size_t i = 0; i < in; ++i) sum += double{x[row + i]} * weight[out * in + i];
        y.push_back(static_cast<float>(sum));
      }
    }
    return y;
  }

  std::vector<float> Linear(const std::vector<float>& x, int64_t in, const std::string& name,
                            bool bias) const {
    return Product(x, static_cast<size_t>(in), Tensor(name + ".weight"),
                   bias ? Tensor(name + ".bias") : std::vector<float>());
  }

  // Rotates pair (i, i + pairs) of every head of x [rows, heads * dim]; row = position.
  void Rotate(std::vector<float>& x, int32_t heads, const LayerConfig& layer) const {
    const auto dim = static_cast<size_t>(layer.attention.k_dim);
    const std::vector<float> frequencies =
        InverseFrequencies(config_.ropes[static_cast<size_t>(layer.rope)]);
    const size_t pairs = frequencies.size();
    for (size_t head = 0; head < x.size() / dim; ++head) {
      for (size_t i = 0; i < pairs; ++i) {
        const double angle = double{frequencies[i]} * static_cast<double>(head / heads);
        float& a = x[head * dim + i];
        float& b = x[head * dim + i + pairs];
        const double rotated = a * std::cos(angle) - b * std::sin(angle);
        b = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
        a = static_cast<float>(rotated);
      }
    }
  }

  std::vector<float> Attention(const std::string& prefix, const std::vector<float>& x,
                               const LayerConfig& layer) const {
    const int64_t hidden = config_.hidden_size, window = layer.window;
    const int64_t dim = layer.attention.k_dim, v_dim = layer.attention.v_dim;
    const int64_t heads = layer.attention.heads, kv_heads = layer.attention.kv_heads;
    std::vector<float> q = Linear(x, hidden, prefix + "q_proj", config_.attention_bias);
    std::vector<float> k = Linear(x, hidden, prefix + "k_proj", config_.attention_bias);
    std::vector<float> v = Linear(x, hidden, prefix + "v_proj", config_.attention_bias);
    Rotate(q, layer.attention.heads, layer);
    Rotate(k, layer.attention.kv_heads, layer);
    const int64_t rows = static_cast<int64_t>(q.size()) / (heads * dim);
    for (int64_t head = 0; storage_ && head < rows * kv_heads; ++head) {
      storage_(k.data() + head * dim, dim);
      storage_(v.data() + head * v_dim, v_dim);
    }
    std::vector<float> output(static_cast<size_t>(rows * heads * v_dim));
    for (int64_t item = 0; item < rows * heads; ++item) {
      const int64_t row = item / heads, kv_head = item % heads / (heads / kv_heads);
      const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, row - window + 1);
      std::vector<double> scores;
      for (int64_t j = first; j <= row; ++j) {
        double sum = 0;
        for (int64_t d = 0; d < dim; ++d) {
          sum += double{q[item * dim + d]} * k[(j * kv_heads + kv_head) * dim + d];
        }
        const int times = window == 0 && mask_ ? mask_(layer_, item % heads, row, j) : 1;
        scores.push_back(sum / std::sqrt(static_cast<double>(dim)) + std::log(times));
      }
      const double largest = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (double& score : scores) total += score = std::exp(score - largest);
      std::vector<double> sums(static_cast<size_t>(v_dim));
      for (int64_t j = first; j <= row; ++j) {
        const double share = scores[j - first] / total;
        const float* const value = v.data() + (j * kv_heads + kv_head) * v_dim;
        for (int64_t d = 0; d < v_dim; ++d) sums[d] += share * value[d];
      }
      for (int64_t d = 0; d < v_dim; ++d) output[item * v_dim + d] = static_cast<float>(sums[d]);
    }
    return Linear(output, heads * v_dim, prefix + "o_proj", config_.attention_bias);
  }

  std::vector<float> Mlp(const std::string& prefix, const std::vector<float>& x) const {
    std::vector<float> gate =
        Linear(x, config_.hidden_size, prefix + "gate_proj", config_.mlp_bias);
    const std::vector<float> up =
        Linear(x, config_.hidden_size, prefix + "up_proj", config_.mlp_bias);
    for (size_t i = 0; i < gate.size(); ++i) {
      gate[i] = static_cast<float>(gate[i] / (1 + std::exp(-double{gate[i]})) * up[i]);
    }
    return Linear(gate, config_.intermediate_size, prefix + "down_proj", config_.mlp_bias);
  }

  const ModelConfig& config_;
  const TensorSource& source_;
  const Mask mask_;
  const Storage storage_;
  mutable int64_t layer_ = 0;  // that is computed now
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_MODEL_PLAIN_FORWARD_H_
