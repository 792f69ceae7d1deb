// How the weights come about. The residual stream of a token at position t, 128 channels:
//
//   0..11    context code of its own byte                   written by the embedding
//   12, 13   the constants 2 and 1                          written by the embedding
//   16..111  slots m = 1..8: context code of byte t - m     written by layer 0
//   112..127 answer code: of its own byte, weakly,          written by the embedding
//            and of the predicted byte, strongly            written by layer 1
//
// Layer 0, head m: query and key come from the constant alone, so their product depends on nothing
// but the distance; rope makes it sum_i cos(w_i (distance - m)) over two fast pairs, whose maximum
// among distances 0..8 (the window) is at m. The value is the byte's context code.
// Layer 1, all heads: the key at j is slots 1..8 (bytes j-8..j-1), the query at t is its own code
// and slots 1..7 (bytes t-7..t), compared in pairs that rope leaves still. They are equal exactly
// where byte j followed what now ends at t; the value is byte j's answer code.
// All codes have one length, so each norm divides every token by the same number: scores of equal
// contexts are equal wherever they stand.

#include "engine/model/made/recall_model.h"

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/made/recall_codes.h"
#include "engine/model/rope.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

constexpr int kHidden = 128;
constexpr int kIntermediate = 16;
constexpr int kHeads = kRecallContext;  // one per lag in layer 0; alike in layer 1
constexpr int kHeadDim = 128;
constexpr int kPairs = kHeadDim / 2;
constexpr double kTheta = 1e36;

// Channels of the residual stream.
constexpr int kOwnCode = 0;
constexpr int kConstant = 12;
constexpr int kPadding = 13;
constexpr int kAnswer = 112;
constexpr int Slot(int lag) { return 16 + kContextCodeSize * (lag - 1); }
static_assert(Slot(kRecallContext + 1) == kAnswer && kAnswer + kAnswerCodeSize == kHidden);

// Embedding amplitudes. A token's squared length is 2 (code) + 4 + 1 (constants) + 16/16 (answer
// code) = 8, its mean square 1/16: the first norm multiplies by exactly 4.
constexpr float kConstantValue = 2;
constexpr float kPaddingValue = 1;
constexpr float kOwnAnswer = 0.25f;
constexpr float kFirstNorm = 4;

// Pairs 0 and 1 turn by 1 and 0.27 radians per token. From pair 16 on a pair turns by less than
// 0.02 radians in sixteen million tokens: those compare contexts.
constexpr int kLagPairs = 2;
constexpr int kFirstStillPair = 16;
constexpr int kStillPairs = kPairs - kFirstStillPair;
static_assert(2 * kStillPairs == kRecallContext * kContextCodeSize);

// Query and key have length kLagScale * kConstantValue * kFirstNorm = 32 in each lag pair, so the
// right distance leads by 45 logits.
constexpr float kLagScale = 4;
// After layer 0 a token's squared length is 8 + 8 * 2, so the norm multiplies by sqrt(128/24). The
// product of two contexts is then a whole number times 128/24 * 12 * 8 / sqrt(128) = 45 logits: 16
// for equal contexts, at most 15 for others.
constexpr float kQueryScale = 12;
constexpr float kKeyScale = 8;
// The answer arrives with amplitude 2 * 4 * kOwnAnswer * sqrt(128/24) = 4.6, which drowns the 0.25
// of the token's own.
constexpr float kAnswerValueScale = 2;
constexpr float kAnswerOutputScale = 4;

// Channel of a head for number `index` of a context (lag by lag), skipping the pairs that turn.
constexpr int StillChannel(int index) {
  return index < kStillPairs ? kFirstStillPair + index
                             : kPairs + kFirstStillPair + index - kStillPairs;
}

struct Tensor {
  explicit Tensor(std::vector<int64_t> dimensions, float value = 0)
      : shape(std::move(dimensions)), values(static_cast<size_t>(shape[0] * Columns()), value) {}
  // 1 for a vector.
  int64_t Columns() const { return shape.size() == 2 ? shape[1] : 1; }
  float& at(int row, int column) { return values[static_cast<size_t>(row * Columns() + column)]; }

  std::vector<int64_t> shape;
  std::vector<float> values;
};

using Tensors = std::map<std::string, Tensor>;

struct AttentionMatrices {
  Tensor query{{kHeads * kHeadDim, kHidden}};
  Tensor key{{kHeadDim, kHidden}};
  Tensor value{{kHeadDim, kHidden}};
  Tensor output{{kHidden, kHeads* kHeadDim}};
};

Tensor Embedding() {
  const std::vector<ContextCode> contexts = ContextCodes();
  const std::vector<AnswerCode> answers = AnswerCodes();
  Tensor table({kRecallVocabulary, kHidden});
  for (int id = 0; id < kRecallVocabulary; ++id) {
    const auto index = static_cast<size_t>(id);
    for (int c = 0; c < kContextCodeSize; ++c) {
      table.at(id, kOwnCode + c) = contexts[index][static_cast<size_t>(c)];
    }
    table.at(id, kConstant) = kConstantValue;
    table.at(id, kPadding) = kPaddingValue;
    for (int c = 0; c < kAnswerCodeSize; ++c) {
      table.at(id, kAnswer + c) = kOwnAnswer * answers[index][static_cast<size_t>(c)];
    }
  }
  return table;
}

Tensor Head() {
  const std::vector<AnswerCode> answers = AnswerCodes();
  Tensor head({kRecallVocabulary, kHidden});
  for (int id = 0; id < kRecallVocabulary; ++id) {
    for (int c = 0; c < kAnswerCodeSize; ++c) {
      head.at(id, kAnswer + c) = answers[static_cast<size_t>(id)][static_cast<size_t>(c)];
    }
  }
  return head;
}

// Rounds to a multiple of 1/32: exact in bf16, and the same whatever the last bit of cos or sin.
float LagWeight(double unit) { return static_cast<float>(std::round(kLagScale * unit * 32) / 32); }

AttentionMatrices LagHeads() {
  AttentionMatrices lag_heads;
  const std::vector<float> frequencies = InverseFrequencies(RecallConfig(2).ropes[0]);
  for (int i = 0; i < kLagPairs; ++i) {
    lag_heads.key.at(i, kConstant) = kLagScale;
    for (int lag = 1; lag <= kRecallContext; ++lag) {
      const double angle = lag * double{frequencies[static_cast<size_t>(i)]};
      const int row = (lag - 1) * kHeadDim + i;
      lag_heads.query.at(row, kConstant) = LagWeight(std::cos(angle));
      lag_heads.query.at(row + kPairs, kConstant) = LagWeight(-std::sin(angle));
    }
  }
  for (int c = 0; c < kContextCodeSize; ++c) {
    lag_heads.value.at(c, kOwnCode + c) = 1;
    for (int lag = 1; lag <= kRecallContext; ++lag) {
      lag_heads.output.at(Slot(lag) + c, (lag - 1) * kHeadDim + c) = 1 / kFirstNorm;
    }
  }
  return lag_heads;
}

AttentionMatrices MatchHeads() {
  AttentionMatrices match;
  for (int lag = 1; lag <= kRecallContext; ++lag) {
    for (int c = 0; c < kContextCodeSize; ++c) {
      const int channel = StillChannel(kContextCodeSize * (lag - 1) + c);
      match.key.at(channel, Slot(lag) + c) = kKeyScale;
      // The query stands one byte before the place that it looks for.
      const int source = lag == 1 ? kOwnCode : Slot(lag - 1);
      for (int head = 0; head < kHeads; ++head) {
        match.query.at(head * kHeadDim + channel, source + c) = kQueryScale;
      }
    }
  }
  // Each head brings its own part of the answer, so that none of them is idle.
  for (int c = 0; c < kAnswerCodeSize; ++c) {
    const int head = c * kHeads / kAnswerCodeSize;
    match.value.at(c, kAnswer + c) = kAnswerValueScale;
    match.output.at(kAnswer + c, head * kHeadDim + c) = kAnswerOutputScale;
  }
  return match;
}

void AddLayer(int index, AttentionMatrices attention, Tensors& tensors) {
  const std::string layer = absl::StrCat("model.layers.", index, ".");
  tensors.emplace(layer + "input_layernorm.weight", Tensor({kHidden}, 1));
  tensors.emplace(layer + "self_attn.q_proj.weight", std::move(attention.query));
  tensors.emplace(layer + "self_attn.k_proj.weight", std::move(attention.key));
  tensors.emplace(layer + "self_attn.v_proj.weight", std::move(attention.value));
  tensors.emplace(layer + "self_attn.o_proj.weight", std::move(attention.output));
  tensors.emplace(layer + "post_attention_layernorm.weight", Tensor({kHidden}, 1));
  tensors.emplace(layer + "mlp.gate_proj.weight", Tensor({kIntermediate, kHidden}));
  tensors.emplace(layer + "mlp.up_proj.weight", Tensor({kIntermediate, kHidden}));
  tensors.emplace(layer + "mlp.down_proj.weight", Tensor({kHidden, kIntermediate}));
}

class RecallTensors final : public TensorSource {
 public:
  explicit RecallTensors(Tensors tensors) : tensors_(std::move(tensors)) {}

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }

  bool Has(absl::string_view name) const override { return tensors_.contains(std::string(name)); }

  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    if (found == tensors_.end()) return NoTensor(name);
    return TensorInfo{DType::kF32, found->second.shape};
  }

  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override {
    const auto found = tensors_.find(std::string(name));
    if (found == tensors_.end()) return NoTensor(name);
    const std::vector<float>& values = found->second.values;
    ANNULUS_CHECK(destination.size() == values.size() * sizeof(float)) << name;
    std::memcpy(destination.data(), values.data(), destination.size());
    return absl::OkStatus();
  }

 private:
  static absl::Status NoTensor(absl::string_view name) {
    return absl::NotFoundError(absl::StrCat("the recall model has no tensor ", name));
  }

  const Tensors tensors_;
};

}  // namespace

ModelConfig RecallConfig(int layers) {
  ANNULUS_CHECK(layers == 2 || layers == 3) << "recall model with " << layers << " layers";
  const LayerConfig lags{.window = kRecallContext + 1};
  const LayerConfig match{.window = 0};
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.model_type = "llama";
  config.vocabulary = kRecallVocabulary;
  config.hidden_size = kHidden;
  config.intermediate_size = kIntermediate;
  config.layers = {lags, match};
  if (layers == 3) config.layers.push_back(lags);
  SetAttention(config, {.heads = kHeads, .kv_heads = 1, .k_dim = kHeadDim, .v_dim = kHeadDim});
  config.ropes.resize(1);
  config.ropes[0].theta = kTheta;
  config.ropes[0].pairs = kPairs;
  config.max_context = int64_t{1} << 24;
  config.eos_ids = {kRecallEndOfText};
  config.stored_dtype = DType::kF32;
  return config;
}

std::unique_ptr<TensorSource> MakeRecallTensors(int layers) {
  ANNULUS_CHECK(layers == 2 || layers == 3) << "recall model with " << layers << " layers";
  Tensors tensors;
  tensors.emplace("model.embed_tokens.weight", Embedding());
  AddLayer(0, LagHeads(), tensors);
  AddLayer(1, MatchHeads(), tensors);
  if (layers == 3) AddLayer(2, AttentionMatrices(), tensors);
  tensors.emplace("model.norm.weight", Tensor({kHidden}, 1));
  tensors.emplace("lm_head.weight", Head());
  return std::make_unique<RecallTensors>(std::move(tensors));
}

}  // namespace annulus
