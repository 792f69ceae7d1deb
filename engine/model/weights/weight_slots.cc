#include "engine/model/weights/weight_slots.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Lists the slots of one model.
class SlotLister {
 public:
  SlotLister(const ModelConfig& config, const TensorNames& names, ModelWeights& weights)
      : config_(config), names_(names), weights_(weights), hidden_(config.hidden_size) {}

  WeightSlots List();

 private:
  void AddMatrix(StoredMatrix stored, PackedMatrix& target) {
    slots_.matrices.push_back({std::move(stored), &target, std::nullopt});
  }
  void AddVector(StoredVector stored, DeviceVector& target) {
    slots_.vectors.push_back({std::move(stored), &target});
  }
  void AddNorm(const std::string& name, int64_t size, DeviceVector& target) {
    slots_.vectors.push_back(
        {{name + ".weight", {size}, size}, &target, config_.unit_offset_norms});
  }
  void AddHeadNorms(const std::string& name, const LayerConfig& layer, int64_t heads,
                    DeviceVector& target);
  void AddLinear(const std::string& name, int64_t out, int64_t in, bool bias, LinearWeights& target,
                 HeadOrder heads = {}) {
    AddPart(name, out, out, 0, in, bias, target, heads);
  }
  // Rows [first, first + out) of a matrix that has `all` of them.
  void AddPart(const std::string& name, int64_t all, int64_t out, int64_t first, int64_t in,
               bool bias, LinearWeights& target, HeadOrder heads = {}) {
    const std::string stored = name + names_.infix;
    AddMatrix({stored + ".weight", {all, in}, out, in, 0, first, 1, false, heads}, target.weight);
    if (bias) AddVector({stored + ".bias", {all}, out, 0, first, 1, heads}, target.bias);
  }
  HeadOrder OrderOfHeads(const LayerConfig& layer) const;
  void AddNorms(const std::string& prefix, const LayerConfig& config, LayerWeights& layer);
  void AddAttention(const std::string& prefix, const LayerConfig& config, LayerWeights& layer);
  void AddMlp(const std::string& prefix, const LayerConfig& config, LayerWeights& layer);
  void AddShared(const std::string& prefix, const LayerConfig& config, LayerWeights& layer);
  void AddExperts(const std::string& prefix, LayerWeights& layer);
  void AddStackedExpert(const std::string& prefix, int64_t expert, GatedWeights& target);
  void AddHalvedExpert(const std::string& prefix, int64_t expert, GatedWeights& target);
  void AddInputs();
  void AddStreams();
  void AddRows(const std::string& name, int64_t rows, int64_t cols, DeviceVector& target);
  void AddLayerStreams(const std::string& prefix, LayerWeights& layer);
  void AddEnding(const std::string& prefix, LayerWeights& layer);

  const ModelConfig& config_;
  const TensorNames& names_;
  ModelWeights& weights_;
  const int64_t hidden_;
  WeightSlots slots_;
};

void SlotLister::AddNorms(const std::string& prefix, const LayerConfig& config,
                          LayerWeights& layer) {
  const AttentionShape& shape = config.attention;
  const bool together = config_.traits.head_norms == HeadNorms::kTogether;
  const int64_t query = together ? shape.query_columns() : shape.k_dim;
  const int64_t key = together ? shape.key_columns() : shape.k_dim;
  for (size_t i = 0; i < kLayerNorms; ++i) {
    const auto norm = static_cast<LayerNorm>(i);
    const absl::string_view name = config_.traits.norms[norm];
    if (name.empty() || (norm == LayerNorm::kKey && !config.has_own_keys())) continue;
    const std::string whole = absl::StrCat(prefix, name);
    if (norm == LayerNorm::kRouterInput) {
      const float factor = 1 / std::sqrt(static_cast<float>(hidden_));
      slots_.vectors.push_back({{whole, {hidden_}, hidden_}, &layer.norms[norm], false, factor});
      continue;
    }
    if (norm == LayerNorm::kStreamRouter) {
      const float factor = 1 / static_cast<float>(hidden_);
      slots_.vectors.push_back(
          {{whole + ".weight", {hidden_}, hidden_}, &layer.norms[norm], false, factor});
      continue;
    }
    const bool of_heads = norm == LayerNorm::kQuery || norm == LayerNorm::kKey;
    if (of_heads && config_.traits.head_norms == HeadNorms::kOwnWeights) {
      AddHeadNorms(whole, config, norm == LayerNorm::kQuery ? shape.heads : shape.kv_heads,
                   layer.norms[norm]);
      continue;
    }
    AddNorm(whole,
            norm == LayerNorm::kQuery ? query
            : norm == LayerNorm::kKey ? key
                                      : hidden_,
            layer.norms[norm]);
    if (config_.traits.norm_biases && !of_heads) {
      AddVector({whole + ".bias", {hidden_}, hidden_}, layer.norm_biases[norm]);
    }
  }
}

// Each head with a weight of its own, in the order of the head's rows.
void SlotLister::AddHeadNorms(const std::string& name, const LayerConfig& layer, int64_t heads,
                              DeviceVector& target) {
  const int64_t size = layer.attention.k_dim;
  const HeadOrder order = OrderOfHeads(layer);
  for (int64_t head = 0; head < heads; ++head) {
    if (names_.head_norms_apart) {
      AddVector({absl::StrCat(name, ".norms.", head, ".weight"), {size}, size, 0, 0, 1, order},
                target);
    } else {
      AddVector({name + ".weight", {heads, size}, size, head, 0, 1, order}, target);
    }
  }
}

HeadOrder SlotLister::OrderOfHeads(const LayerConfig& layer) const {
  if (!config_.traits.tensors.rope_pairs_neighbours || layer.rope == kNoRope) return {};
  return {layer.attention.k_dim, 2 * config_.ropes[static_cast<size_t>(layer.rope)].pairs};
}

void SlotLister::AddAttention(const std::string& prefix, const LayerConfig& config,
                              LayerWeights& layer) {
  const AttentionShape& shape = config.attention;
  const HeadOrder heads = OrderOfHeads(config);
  const int64_t query = shape.query_columns();
  const int64_t key = shape.key_columns();
  const int64_t value = shape.value_columns();
  const bool bias = config_.attention_bias;
  if (config_.traits.tensors.fused_heads) {
    const std::string fused = prefix + "qkv_proj";
    const int64_t all = query + key + value;
    AddPart(fused, all, query, 0, hidden_, bias, layer.query, heads);
    AddPart(fused, all, key, query, hidden_, bias, layer.key, heads);
    AddPart(fused, all, value, query + key, hidden_, bias, layer.value);
  } else {
    AddLinear(prefix + "q_proj", query, hidden_, bias, layer.query, heads);
    if (config.has_own_keys()) {
      AddLinear(prefix + "k_proj", key, hidden_, bias, layer.key, heads);
    }
    if (config.has_own_keys() && !config.values_are_keys) {
      AddLinear(prefix + "v_proj", value, hidden_, bias, layer.value);
    }
  }
  AddLinear(prefix + "o_proj", hidden_, shape.attended_columns(), config_.output_bias,
            layer.output);
  if (config_.traits.sinks) {
    AddVector({prefix + "sinks", {shape.heads}, shape.heads}, layer.sinks);
  }
}

void SlotLister::AddMlp(const std::string& prefix, const LayerConfig& config, LayerWeights& layer) {
  const int64_t size = BlockSize(config_, config);
  const bool bias = config_.mlp_bias;
  const TensorLayout& layout = config_.traits.tensors;
  if (layout.fused_block) {
    const std::string fused = absl::StrCat(prefix, layout.gate_up);
    AddPart(fused, 2 * size, size, 0, hidden_, bias, layer.mlp.gate);
    AddPart(fused, 2 * size, size, size, hidden_, bias, layer.mlp.up);
  } else if (!HasGate(config_)) {
    AddLinear(absl::StrCat(prefix, layout.gate_up), size, hidden_, bias, layer.mlp.gate);
  } else {
    AddLinear(prefix + "gate_proj", size, hidden_, bias, layer.mlp.gate);
    AddLinear(prefix + "up_proj", size, hidden_, bias, layer.mlp.up);
  }
  AddLinear(absl::StrCat(prefix, layout.down), hidden_, size, bias, layer.mlp.down);
}

void SlotLister::AddShared(const std::string& prefix, const LayerConfig& config,
                           LayerWeights& layer) {
  const int64_t size = BlockSize(config_, config);
  if (size == 0) return;
  const std::string block = absl::StrCat(prefix, config_.traits.tensors.shared);
  AddLinear(block + ".gate_proj", size, hidden_, false, layer.mlp.gate);
  AddLinear(block + ".up_proj", size, hidden_, false, layer.mlp.up);
  AddLinear(block + ".down_proj", hidden_, size, false, layer.mlp.down);
  if (config_.experts.shared_gate) {
    AddLinear(block + "_gate", 1, hidden_, false, layer.shared_gate);
  }
}

// One of the experts that share a tensor [experts, in, out].
void SlotLister::AddStackedExpert(const std::string& prefix, int64_t expert, GatedWeights& target) {
  const int64_t count = config_.experts.count;
  const int64_t size = config_.experts.intermediate_size;
  const std::string gate_up = prefix + "gate_up_proj";
  const std::string down = prefix + "down_proj";
  for (const int64_t part : {0, 1}) {
    LinearWeights& linear = part == 0 ? target.gate : target.up;
    AddMatrix({gate_up, {count, hidden_, 2 * size}, size, hidden_, expert, part, 2, true},
              linear.weight);
    if (config_.experts.biases) {
      AddVector({gate_up + "_bias", {count, 2 * size}, size, expert, part, 2}, linear.bias);
    }
  }
  AddMatrix({down, {count, size, hidden_}, hidden_, size, expert, 0, 1, true}, target.down.weight);
  if (config_.experts.biases) {
    AddVector({down + "_bias", {count, hidden_}, hidden_, expert}, target.down.bias);
  }
}

// One of the experts that share a tensor [experts, out, in], or [experts, in, out], whose outputs
// are gate and then up.
void SlotLister::AddHalvedExpert(const std::string& prefix, int64_t expert, GatedWeights& target) {
  const int64_t size = config_.experts.intermediate_size;
  const bool turned = names_.experts_in_out;
  const auto shape = [&](int64_t out, int64_t in) -> std::vector<int64_t> {
    return {config_.experts.count, turned ? in : out, turned ? out : in};
  };
  const std::string both = prefix + "gate_up_proj";
  for (const int64_t part : {0, 1}) {
    LinearWeights& linear = part == 0 ? target.gate : target.up;
    AddMatrix({both, shape(2 * size, hidden_), size, hidden_, expert, part * size, 1, turned},
              linear.weight);
  }
  AddMatrix({prefix + "down_proj", shape(hidden_, size), hidden_, size, expert, 0, 1, turned},
            target.down.weight);
}

void SlotLister::AddExperts(const std::string& prefix, LayerWeights& layer) {
  struct Names {
    const char* block;
    const char* router;
    const char* choice_bias;
    const char* gate;
    const char* up;
    const char* down;
  };
  static constexpr Names kSeparateNames = {"mlp.",      "gate",    "gate.e_score_correction_bias",
                                           "gate_proj", "up_proj", "down_proj"};
  static constexpr Names kMixtralNames = {
      "block_sparse_moe.", "gate", "e_score_correction_bias", "w1", "w3", "w2"};
  static constexpr Names kStackedNames = {"mlp.", "router", "", "", "", ""};
  static constexpr Names kGemma4Names = {"",          "router.proj", "",
                                         "gate_proj", "up_proj",     "down_proj"};
  const ExpertTensors kind = config_.traits.tensors.experts;
  const Names& names = kind == ExpertTensors::kStacked   ? kStackedNames
                       : kind == ExpertTensors::kMixtral ? kMixtralNames
                       : kind == ExpertTensors::kGemma4  ? kGemma4Names
                                                         : kSeparateNames;
  const std::string block = prefix + names.block;
  const int64_t size = config_.experts.intermediate_size;
  const bool bias = config_.experts.biases;
  AddLinear(block + names.router, config_.experts.count, hidden_, bias, layer.router);
  if (config_.experts.choice_bias) {
    AddVector({block + names.choice_bias, {config_.experts.count}, config_.experts.count},
              layer.choice_bias);
  }
  if (config_.experts.factors) {
    AddVector({block + "router.per_expert_scale", {config_.experts.count}, config_.experts.count},
              layer.expert_factors);
  }
  layer.experts.each.resize(static_cast<size_t>(config_.experts.count));
  const size_t first = slots_.matrices.size();
  for (size_t e = 0; e < layer.experts.each.size(); ++e) {
    GatedWeights& expert = layer.experts.each[e];
    if (kind == ExpertTensors::kStacked) {
      AddStackedExpert(block + "experts.", static_cast<int64_t>(e), expert);
      continue;
    }
    if (kind == ExpertTensors::kHalves ||
        (kind == ExpertTensors::kGemma4 && !names_.experts_apart)) {
      AddHalvedExpert(block + "experts.", static_cast<int64_t>(e), expert);
      continue;
    }
    const std::string name = absl::StrCat(block, "experts.", e, ".");
    AddLinear(name + names.gate, size, hidden_, bias, expert.gate);
    AddLinear(name + names.up, size, hidden_, bias, expert.up);
    AddLinear(name + names.down, hidden_, size, bias, expert.down);
  }
  constexpr size_t kProjections = 3;
  for (size_t i = first; i < slots_.matrices.size(); ++i) {
    slots_.matrices[i].listed_with = first + (i - first) % kProjections;
  }
}

// What gives every layer its input.
void SlotLister::AddInputs() {
  const int64_t size = config_.layer_input_size;
  if (size == 0) return;
  const int64_t all = size * std::ssize(config_.layers);
  const int64_t tokens = config_.layer_input_vocabulary;
  AddMatrix({names_.model + "embed_tokens_per_layer.weight", {tokens, all}, tokens, all},
            weights_.layer_embedding);
  AddLinear(names_.model + "per_layer_model_projection", all, hidden_, false,
            weights_.layer_projection);
  slots_.vectors.push_back({{names_.model + "per_layer_projection_norm.weight", {size}, size},
                            &weights_.layer_projection_norm,
                            false,
                            std::sqrt(0.5f)});
}

// What makes the streams but the first of the embedding, and one of all for the head.
void SlotLister::AddStreams() {
  if (!config_.streams.used()) return;
  const auto others = static_cast<size_t>(config_.streams.count) - 1;
  weights_.stream_projections.resize(others);
  weights_.stream_unprojections.resize(others);
  for (size_t i = 0; i < others; ++i) {
    AddLinear(absl::StrCat(names_.model, "altup_projections.", i), hidden_, hidden_, false,
              weights_.stream_projections[i]);
    AddLinear(absl::StrCat(names_.model, "altup_unembed_projections.", i), hidden_, hidden_, false,
              weights_.stream_unprojections[i]);
  }
}

// A matrix that is kept as a vector, row after row.
void SlotLister::AddRows(const std::string& name, int64_t rows, int64_t cols,
                         DeviceVector& target) {
  for (int64_t row = 0; row < rows; ++row) {
    AddVector({name + ".weight", {rows, cols}, cols, row}, target);
  }
}

void SlotLister::AddLayerStreams(const std::string& prefix, LayerWeights& layer) {
  if (config_.laurel_rank > 0) {
    AddLinear(prefix + "laurel.linear_left", config_.laurel_rank, hidden_, false,
              layer.laurel_left);
    AddLinear(prefix + "laurel.linear_right", hidden_, config_.laurel_rank, false,
              layer.laurel_right);
  }
  if (!config_.streams.used()) return;
  const std::string altup = prefix + "altup.";
  const int64_t count = config_.streams.count;
  AddLinear(altup + "modality_router", count, hidden_, false, layer.stream_router);
  AddRows(altup + "prediction_coefs", count * count, count, layer.prediction);
  AddRows(altup + "correction_coefs", count, count, layer.correction);
  AddVector({altup + "correct_output_scale", {hidden_}, hidden_}, layer.corrected_scale);
}

void SlotLister::AddEnding(const std::string& prefix, LayerWeights& layer) {
  const int64_t size = config_.layer_input_size;
  if (size > 0) {
    AddLinear(prefix + "per_layer_input_gate", size, hidden_, false, layer.input_gate);
    AddLinear(prefix + "per_layer_projection", hidden_, size, false, layer.input_projection);
  }
  if (config_.traits.scaled_layers) AddVector({prefix + "layer_scalar", {1}, 1}, layer.scale);
}

WeightSlots SlotLister::List() {
  const auto vocabulary = [&](const std::string& name) -> StoredMatrix {
    return {name + ".weight", {config_.vocabulary, hidden_}, config_.vocabulary, hidden_};
  };
  AddMatrix(vocabulary(names_.embedding), weights_.embedding);
  weights_.layers.resize(config_.layers.size());
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    LayerWeights& layer = weights_.layers[i];
    const std::string prefix = absl::StrCat(names_.model, "layers.", i, ".");
    const LayerConfig& config = config_.layers[i];
    AddNorms(prefix, config, layer);
    AddAttention(prefix + "self_attn.", config, layer);
    if (config.experts) {
      AddExperts(prefix, layer);
      AddShared(prefix, config, layer);
    } else {
      AddMlp(absl::StrCat(prefix, config_.traits.tensors.block), config, layer);
    }
    AddLayerStreams(prefix, layer);
    AddEnding(prefix, layer);
  }
  AddInputs();
  AddStreams();
  AddNorm(names_.model + "norm", hidden_, weights_.final_norm);
  if (config_.traits.norm_biases) {
    AddVector({names_.model + "norm.bias", {hidden_}, hidden_}, weights_.final_norm_bias);
  }
  if (!names_.tied) {
    AddMatrix(vocabulary(names_.head), weights_.separate_head.emplace());
  }
  return std::move(slots_);
}

// Which of two orders a checkpoint has, of the first layer with experts. Never undecided: at most
// one of the two tensors is square.
bool ExpertsAreInOut(const ModelConfig& config, const TensorSource& source,
                     const std::string& prefix) {
  const auto layer = std::find_if(config.layers.begin(), config.layers.end(),
                                  [](const LayerConfig& each) { return each.experts; });
  if (config.traits.tensors.experts != ExpertTensors::kHalves || layer == config.layers.end()) {
    return false;
  }
  const int64_t hidden = config.hidden_size;
  const int64_t size = config.experts.intermediate_size;
  const bool by_down = 2 * size == hidden;
  const auto tensor =
      source.Describe(absl::StrCat(prefix, "layers.", layer - config.layers.begin(),
                                   ".mlp.experts.", by_down ? "down_proj" : "gate_up_proj"));
  const std::vector<int64_t> in_out = {config.experts.count, by_down ? size : hidden,
                                       by_down ? hidden : 2 * size};
  return tensor.ok() && tensor->shape == in_out;
}

absl::StatusOr<bool> SameTensor(const TensorSource& source, const std::string& a,
                                const std::string& b) {
  constexpr size_t kBlock = size_t{1} << 20;
  if (!source.Has(a) || !source.Has(b)) return source.Has(a) == source.Has(b);
  const auto first = source.Describe(a);
  const auto second = source.Describe(b);
  if (!first.ok() || !second.ok() || first->dtype != second->dtype ||
      first->shape != second->shape) {
    return false;
  }
  std::vector<std::byte> left(std::min(kBlock, first->bytes()));
  std::vector<std::byte> right(left.size());
  for (size_t offset = 0; offset < first->bytes(); offset += left.size()) {
    const size_t count = std::min(left.size(), first->bytes() - offset);
    ANNULUS_RETURN_IF_ERROR(source.ReadRange(a, offset, std::span(left).first(count)));
    ANNULUS_RETURN_IF_ERROR(source.ReadRange(b, offset, std::span(right).first(count)));
    if (std::memcmp(left.data(), right.data(), count) != 0) return false;
  }
  return true;
}

// Whether the head is the embedding, with its scales if it has any.
absl::StatusOr<bool> IsCopy(const TensorSource& source, const std::string& head,
                            const std::string& embedding) {
  for (const char* end : {".weight", ".weight_scale", ".weight_scale_inv"}) {
    ANNULUS_ASSIGN_OR_RETURN(const bool same, SameTensor(source, head + end, embedding + end));
    if (!same) return false;
  }
  return true;
}

}  // namespace

TensorNames UsualNames(const ModelConfig& config) {
  TensorNames names;
  names.tied = config.tie_word_embeddings;
  return names;
}

absl::StatusOr<TensorNames> NamesIn(const ModelConfig& config, const TensorSource& source) {
  for (const auto& [model, head] : {std::pair("model.", "lm_head"),
                                    std::pair("language_model.model.", "language_model.lm_head"),
                                    std::pair("model.language_model.", "lm_head")}) {
    const std::string prefix(model);
    TensorNames names = {prefix, head, prefix + "embed_tokens", config.tie_word_embeddings};
    constexpr char kInfix[] = ".base_layer";
    names.adapters = config.traits.tensors.adapters;
    for (int32_t i = 0; i < config.guessing_layers; ++i) {
      const size_t layer = config.layers.size() + static_cast<size_t>(i);
      names.guessing.push_back(absl::StrCat(prefix, "layers.", layer, "."));
    }
    for (size_t i = 0; i < config.layers.size(); ++i) {
      if (config.layers[i].has_own_keys()) continue;
      for (const char* part : {"k_proj.", "v_proj.", "k_norm.", "v_norm."}) {
        names.unread.push_back(absl::StrCat(prefix, "layers.", i, ".self_attn.", part));
      }
    }
    names.experts_apart = source.Has(prefix + "layers.0.experts.0.down_proj.weight");
    names.experts_in_out = ExpertsAreInOut(config, source, prefix);
    names.head_norms_apart = source.Has(absl::StrCat(
        prefix, "layers.0.", config.traits.norms[LayerNorm::kQuery], ".norms.0.weight"));
    if (names.adapters &&
        source.Has(absl::StrCat(prefix, "layers.0.self_attn.o_proj", kInfix, ".weight"))) {
      names.infix = kInfix;
    }
    const bool embedding = source.Has(names.embedding + ".weight");
    const bool stored_head = source.Has(names.head + ".weight");
    if (embedding) {
      if (names.tied && stored_head) {
        ANNULUS_ASSIGN_OR_RETURN(names.tied, IsCopy(source, names.head, names.embedding));
      }
      return names;
    }
    if (!names.tied || !stored_head || !source.Has(prefix + "norm.weight")) continue;
    names.embedding = names.head;
    return names;
  }
  return UsualNames(config);
}

WeightSlots SlotsOf(const ModelConfig& config, const TensorNames& names, ModelWeights& weights) {
  return SlotLister(config, names, weights).List();
}

}  // namespace annulus
