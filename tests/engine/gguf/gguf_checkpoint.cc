#include "tests/engine/gguf/gguf_checkpoint.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace annulus::testing {
namespace {

// Rows of each head from halves to neighbouring pairs, as a converter to GGUF orders them.
std::vector<float> Interleave(const std::vector<float>& values, int64_t rows, int64_t heads) {
  const int64_t cols = static_cast<int64_t>(values.size()) / rows;
  const int64_t head_rows = rows / heads;
  std::vector<float> made;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t place = r % head_rows;
    const int64_t from = r - place + place % 2 * (head_rows / 2) + place / 2;
    made.insert(made.end(), values.begin() + from * cols, values.begin() + (from + 1) * cols);
  }
  return made;
}

// Writes a checkpoint's tensors as a GGUF file has them.
class CheckpointWriter {
 public:
  CheckpointWriter(const GgufCase& of, const ModelConfig& config, const TensorSource& source)
      : of_(of), config_(config), source_(source) {}

  void Write(GgufWriter& writer) {
    for (const std::string& name : source_.Names()) Add(name, writer);
    for (const auto& [name, stack] : stacks_) {
      std::vector<float> all;
      for (const auto& [expert, values] : stack.values) {
        all.insert(all.end(), values.begin(), values.end());
      }
      std::vector<int64_t> shape = {static_cast<int64_t>(stack.values.size()), stack.rows,
                                    stack.cols};
      if (stack.rows == 0) shape.erase(shape.begin() + 1);
      writer.AddFloats(name, shape, all);
    }
  }

 private:
  struct Stack {
    int64_t rows = 0, cols = 0;  // of each part; 0 rows: the parts are vectors
    std::map<int64_t, std::vector<float>> values;
  };

  std::string Plain(const std::string& name) const {
    std::string made =
        absl::StrReplaceAll(name, {{"model.layers.", "blk."},
                                   {"model.embed_tokens.", "token_embd."},
                                   {"model.norm.", "output_norm."},
                                   {"lm_head.", "output."},
                                   {"self_attn.q_norm", "attn_q_norm"},
                                   {"self_attn.k_norm", "attn_k_norm"},
                                   {"self_attn.q_layernorm", "attn_q_norm"},
                                   {"self_attn.k_layernorm", "attn_k_norm"},
                                   {"self_attn.query_layernorm", "attn_q_norm"},
                                   {"self_attn.key_layernorm", "attn_k_norm"},
                                   {"post_self_attn_layernorm", "post_attention_norm"},
                                   {"post_mlp_layernorm", "post_ffw_norm"},
                                   {"self_attn.q_proj", "attn_q"},
                                   {"self_attn.k_proj", "attn_k"},
                                   {"self_attn.v_proj", "attn_v"},
                                   {"self_attn.qkv_proj", "attn_qkv"},
                                   {"self_attn.o_proj", "attn_output"},
                                   {"self_attn.sinks", "attn_sinks.weight"},
                                   {"input_layernorm", "attn_norm"},
                                   {"pre_feedforward_layernorm", "ffn_norm"},
                                   {"post_feedforward_layernorm", "post_ffw_norm"},
                                   {"mlp.gate_up_proj", "ffn_up"},
                                   {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                   {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                   {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                   {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                                   {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
                                   {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
                                   {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
                                   {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
                                   {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"},
                                   {"mlp.c_fc", "ffn_up"},
                                   {"mlp.c_proj", "ffn_down"},
                                   {"mlp.gate_proj", "ffn_gate"},
                                   {"mlp.up_proj", "ffn_up"},
                                   {"mlp.down_proj", "ffn_down"},
                                   {"block_sparse_moe.gate.", "ffn_gate_inp."},
                                   {"mlp.gate.", "ffn_gate_inp."},
                                   {"mlp.router.", "ffn_gate_inp."}});
    const std::string architecture = of_.architecture;
    const bool after =
        config_.traits.norms[LayerNorm::kAttentionOutput] == "post_attention_layernorm" ||
        architecture == "gpt-oss" || architecture == "seed_oss" || architecture == "glm4moe";
    return absl::StrReplaceAll(
        made, {{"post_attention_layernorm", after ? "post_attention_norm" : "ffn_norm"}});
  }

  void Add(const std::string& name, GgufWriter& writer) {
    if (absl::StrContains(name, ".experts.")) return AddExpert(name, writer);
    if (absl::StrContains(name, ".norms.")) return AddHeadNorm(name);
    const TensorInfo info = *source_.Describe(name);
    std::vector<float> values = *ReadAsFloat(source_, name);
    if (of_.interleaved && absl::StrContains(name, "q_proj")) {
      values = Interleave(values, info.shape[0], config_.layers[0].attention.heads);
    }
    if (of_.interleaved && absl::StrContains(name, "k_proj")) {
      values = Interleave(values, info.shape[0], config_.layers[0].attention.kv_heads);
    }
    if (of_.gemma && absl::StrContains(name, "norm")) {
      for (float& value : values) value += 1;
    }
    // A matrix of one row, which converters write as a vector, too.
    const bool vector =
        info.shape.size() == 2 && info.shape[0] == 1 && absl::StartsWith(name, "model.layers.0.");
    writer.AddFloats(Plain(name), vector ? std::vector{info.shape[1]} : info.shape, values);
  }

  // PREFIX.norms.HEAD.weight
  void AddHeadNorm(const std::string& name) {
    const size_t at = name.find(".norms.");
    Stack& stack = stacks_[Plain(name.substr(0, at)) + ".weight"];
    const std::vector<float> values = *ReadAsFloat(source_, name);
    stack.cols = static_cast<int64_t>(values.size());
    stack.values[std::stoll(name.substr(at + 7))] = values;
  }

  void AddExpert(const std::string& name, GgufWriter& writer) {
    if (std::string(of_.architecture) == "gpt-oss") return AddGptOss(name, writer);
    // PREFIX.experts.E.KIND.weight
    const size_t at = name.find(".experts.") + 9;
    const size_t dot = name.find('.', at);
    const std::string kind = name.substr(dot + 1, name.find('.', dot + 1) - dot - 1);
    const std::string part = kind == "w1" || kind == "gate_proj" ? "gate"
                             : kind == "w3" || kind == "up_proj" ? "up"
                                                                 : "down";
    const std::string layer = name.substr(13, name.find('.', 13) - 13);
    Stack& stack = stacks_[absl::StrCat("blk.", layer, ".ffn_", part, "_exps.weight")];
    const TensorInfo info = *source_.Describe(name);
    stack.rows = info.shape[0];
    stack.cols = info.shape[1];
    stack.values[std::stoll(name.substr(at, dot - at))] = *ReadAsFloat(source_, name);
  }

  void AddGptOss(const std::string& name, GgufWriter& writer) {
    const std::string layer = absl::StrCat("blk.", name.substr(13, name.find('.', 13) - 13), ".");
    const bool down = absl::StrContains(name, "down_proj");
    if (absl::EndsWith(name, "_bias")) {
      const TensorInfo info = *source_.Describe(name);
      const std::vector<float> values = *ReadAsFloat(source_, name);
      if (down) return writer.AddFloats(layer + "ffn_down_exps.bias", info.shape, values);
      std::vector<float> parts[2];
      for (size_t i = 0; i < values.size(); ++i) parts[i % 2].push_back(values[i]);
      const std::vector<int64_t> shape = {info.shape[0], info.shape[1] / 2};
      writer.AddFloats(layer + "ffn_gate_exps.bias", shape, parts[0]);
      writer.AddFloats(layer + "ffn_up_exps.bias", shape, parts[1]);
      return;
    }
    if (!absl::EndsWith(name, "_blocks")) return;
    const TensorInfo info = *source_.Describe(name);
    std::string codes(info.bytes(), '\0');
    std::string scales(codes.size() / 16, '\0');
    ASSERT_TRUE(source_.Read(name, std::as_writable_bytes(std::span(codes))).ok());
    ASSERT_TRUE(source_
                    .Read(absl::StrReplaceAll(name, {{"_blocks", "_scales"}}),
                          std::as_writable_bytes(std::span(scales)))
                    .ok());
    const auto row_blocks = static_cast<size_t>(info.shape[2]);
    std::string parts[2];
    for (size_t block = 0; block < scales.size(); ++block) {
      uint8_t values[32];
      for (size_t i = 0; i < 16; ++i) {
        const auto pair = static_cast<uint8_t>(codes[block * 16 + i]);
        values[2 * i] = pair & 15;
        values[2 * i + 1] = pair >> 4;
      }
      std::string& to = parts[down ? 0 : block / row_blocks % 2];
      to.push_back(scales[block]);
      for (size_t i = 0; i < 16; ++i)
        to.push_back(static_cast<char>(values[i] | values[i + 16] << 4));
    }
    const std::vector<int64_t> shape = {info.shape[0], info.shape[1] / (down ? 1 : 2),
                                        info.shape[2] * 32};
    if (down) return writer.AddTensor(layer + "ffn_down_exps.weight", shape, 39, parts[0]);
    writer.AddTensor(layer + "ffn_gate_exps.weight", shape, 39, parts[0]);
    writer.AddTensor(layer + "ffn_up_exps.weight", shape, 39, parts[1]);
  }

  const GgufCase& of_;
  const ModelConfig& config_;
  const TensorSource& source_;
  std::map<std::string, Stack> stacks_;
};

}  // namespace

namespace {

void WriteGlm4Experts(const std::string& prefix, const ModelConfig& config, GgufWriter& writer) {
  const RoutingRule& routing = config.experts.routing;
  const auto number = [&](const char* key, int64_t value) {
    writer.Set(prefix + key, static_cast<uint32_t>(value));
  };
  int64_t plain = 0;
  for (const LayerConfig& layer : config.layers) plain += layer.experts ? 0 : 1;
  number("leading_dense_block_count", plain);
  number("expert_shared_count", config.experts.shared_size / config.experts.intermediate_size);
  number("expert_gating_func", 2);
  number("expert_group_count", routing.groups);
  number("expert_group_used_count", routing.chosen_groups);
  number("nextn_predict_layers", config.guessing_layers);
  writer.Set(prefix + "expert_weights_scale", routing.scale);
  writer.Set(prefix + "expert_weights_norm", routing.normalised);
}

// Those that the model has.
void WriteGgufCaps(const std::string& prefix, const ModelConfig& config, GgufWriter& writer) {
  const auto cap = [&](const char* key, float value) {
    if (value > 0) writer.Set(prefix + key, value);
  };
  cap("attn_logit_softcapping", config.attention_soft_cap);
  cap("final_logit_softcapping", config.logits_soft_cap);
}

// Where windows follow a rule of the architecture, files have no pattern.
void WriteGgufWindows(const std::string& architecture, const ModelConfig& config,
                      GgufWriter& writer) {
  const std::string prefix = architecture + ".";
  const int32_t window = config.layers[0].window;
  if (window == 0) return;
  const bool ruled =
      architecture == "gemma2" || architecture == "gpt-oss" || architecture == "cohere2";
  const bool listed =
      architecture == "exaone4" || architecture == "olmo2" || architecture == "gemma3";
  if (ruled || listed) {
    writer.Set(prefix + "attention.sliding_window", static_cast<uint32_t>(window));
  }
  if (!listed) return;
  std::vector<bool> pattern;
  for (const LayerConfig& layer : config.layers) pattern.push_back(layer.window > 0);
  writer.Set(prefix + "attention.sliding_window_pattern", pattern);
}

// What only some architectures say.
void WriteGgufExtras(const GgufCase& of, const ModelConfig& config, GgufWriter& writer) {
  const std::string architecture = of.architecture;
  const std::string prefix = architecture + ".";
  const RopeConfig& rope = config.ropes.back();
  if (rope.growth > 0) {
    writer.Set(prefix + "rope.scaling.type", "yarn");
    writer.Set(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
    writer.Set(prefix + "rope.scaling.original_context_length",
               static_cast<uint32_t>(rope.original_context));
    writer.Set(prefix + "rope.scaling.yarn_beta_fast", static_cast<float>(rope.fast_turns));
    writer.Set(prefix + "rope.scaling.yarn_beta_slow", static_cast<float>(rope.slow_turns));
    writer.Set(prefix + "rope.scaling.yarn_log_multiplier", 1.0f);
    writer.Set(prefix + "attention.temperature_scale", static_cast<float>(rope.growth));
  }
  WriteGgufWindows(architecture, config, writer);
  const RopeConfig& full = config.ropes.front();
  if (full.kind == RopeKind::kYarn && (architecture == "olmo2" || architecture == "gpt-oss")) {
    writer.Set(prefix + "rope.scaling.type", "yarn");
    writer.Set(prefix + "rope.scaling.factor", static_cast<float>(full.factor));
    writer.Set(prefix + "rope.scaling.original_context_length",
               static_cast<uint32_t>(full.original_context));
  }
  if (architecture == "gemma2") WriteGgufCaps(prefix, config, writer);
  if (architecture == "gemma3" && full.kind == RopeKind::kLinear) {
    writer.Set(prefix + "rope.freq_base_swa", static_cast<float>(rope.theta));
    writer.Set(prefix + "rope.scaling.type", "linear");
    writer.Set(prefix + "rope.scaling.factor", static_cast<float>(full.factor));
  }
  if (absl::StrContains(architecture, "vl")) {
    const int32_t part = full.pairs / 4;  // of height and of width, which text has, too
    writer.Set(prefix + "rope.dimension_sections",
               std::vector<int32_t>{full.pairs - 2 * part, part, part, 0});
  }
  if (architecture == "minimax-m2") {
    writer.Set(prefix + "expert_gating_func", uint32_t{2});  // sigmoid
  }
  if (architecture == "glm4moe") WriteGlm4Experts(prefix, config, writer);
  if (architecture == "stablelm") {
    writer.Set(prefix + "use_parallel_residual", config.traits.parallel_blocks);
  }
  if (architecture == "cohere2" || architecture == "command-r") {
    writer.Set(prefix + "logit_scale", config.logits_scale);
    writer.Set(prefix + "rope.scaling.type", "none");
  }
  if (architecture != "granite") return;
  std::ifstream file(of.directory() + "/config.json");
  const nlohmann::json checkpoint = nlohmann::json::parse(file);
  const auto copy = [&](const char* to, const char* from) {
    writer.Set(prefix + to, checkpoint.at(from).get<float>());
  };
  copy("attention.layer_norm_rms_epsilon", "rms_norm_eps");
  copy("attention.scale", "attention_multiplier");
  copy("embedding_scale", "embedding_multiplier");
  copy("residual_scale", "residual_multiplier");
  copy("logit_scale", "logits_scaling");
}

}  // namespace

void WriteGgufMetadata(const GgufCase& of, const ModelConfig& config, GgufWriter& writer) {
  const std::string prefix = absl::StrCat(of.architecture, ".");
  writer.Set("general.architecture", of.architecture);
  const auto number = [&](const char* key, int64_t value) {
    writer.Set(prefix + key, static_cast<uint32_t>(value));
  };
  number("embedding_length", config.hidden_size);
  number("block_count", static_cast<int64_t>(config.layers.size()) + config.guessing_layers);
  number("feed_forward_length", config.intermediate_size);
  const AttentionShape& attention = config.layers.front().attention;
  number("attention.head_count", attention.heads);
  number("attention.head_count_kv", attention.kv_heads);
  number("attention.key_length", attention.k_dim);
  number("attention.value_length", attention.v_dim);
  number("context_length", config.max_context);
  if (std::string(of.architecture) != "granite") {  // whose own is another: see ParseMultipliers
    writer.Set(prefix + (config.norm.centred ? "attention.layer_norm_epsilon"
                                             : "attention.layer_norm_rms_epsilon"),
               config.norm.epsilon);
  }
  writer.Set(prefix + "rope.freq_base", static_cast<float>(config.ropes[0].theta));
  number("rope.dimension_count", config.ropes[0].pairs * 2);
  if (config.experts.count > 0) {
    number("expert_count", config.experts.count);
    number("expert_used_count", config.experts.routing.chosen);
    number("expert_feed_forward_length", config.experts.intermediate_size);
    if (config.experts.shared_gate) {
      number("expert_shared_feed_forward_length", config.experts.shared_size);
    }
  }
  WriteGgufExtras(of, config, writer);
}

void WriteGgufTensors(const GgufCase& of, const ModelConfig& config, const TensorSource& source,
                      GgufWriter& writer) {
  CheckpointWriter(of, config, source).Write(writer);
}

void WriteGgufTokens(int32_t vocabulary, GgufWriter& writer) {
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < vocabulary; ++id) tokens.push_back(absl::StrCat("t", id));
  writer.Set("tokenizer.ggml.model", "gpt2");
  writer.Set("tokenizer.ggml.pre", "gpt-2");
  writer.Set("tokenizer.ggml.tokens", tokens);
  writer.Set("tokenizer.ggml.merges", std::vector<std::string>());
}

}  // namespace annulus::testing
