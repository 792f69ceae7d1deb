#include "engine/model/weights/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/model/files/safetensors.h"
#include "engine/model/weights/matrix_reader.h"
#include "tests/engine/model/packing_backend.h"
#include "tests/support/golden.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;
using testing::PackingBackend;
using testing::Unpack;

// Tensors of zeros that are made when read, so their shapes may be of any size.
class ZeroSource final : public TensorSource {
 public:
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, info] : tensors) names.push_back(name);
    return names;
  }
  bool Has(absl::string_view name) const override { return tensors.count(std::string(name)) > 0; }
  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override {
    const auto found = tensors.find(std::string(name));
    if (found == tensors.end()) return absl::NotFoundError(name);
    return found->second;
  }
  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override {
    ++reads;
    if (name == unreadable) return absl::DataLossError("truncated");
    const TensorInfo& info = tensors.at(std::string(name));
    const bool float8 = info.dtype == DType::kF8E4M3 || info.dtype == DType::kF8E5M2;
    std::memset(destination.data(), float8 ? std::to_integer<int>(float8_byte) : 0,
                destination.size());
    const auto given = floats.find(std::string(name));
    if (given == floats.end()) return absl::OkStatus();
    std::memcpy(destination.data(), given->second.data(), destination.size());
    return absl::OkStatus();
  }

  std::map<std::string, TensorInfo> tensors;
  std::string unreadable;
  std::byte float8_byte{0};                          // of every float8 tensor
  std::map<std::string, std::vector<float>> floats;  // of float32 tensors that are not zeros
  mutable int reads = 0;
};

// 2 layers, hidden 8, 4 heads of 4, 2 kv heads, intermediate 12, vocabulary 10.
ModelConfig SmallConfig() {
  ModelConfig config;
  config.vocabulary = 10;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.layers.resize(2);
  SetAttention(config, {.heads = 4, .kv_heads = 2, .k_dim = 4, .v_dim = 4});
  return config;
}

ZeroSource SmallSource(DType dtype = DType::kF32) {
  ZeroSource source;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    source.tensors[name] = {dtype, std::move(shape)};
  };
  add("model.embed_tokens.weight", {10, 8});
  add("lm_head.weight", {10, 8});
  add("model.norm.weight", {8});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    add(prefix + "input_layernorm.weight", {8});
    add(prefix + "post_attention_layernorm.weight", {8});
    add(prefix + "self_attn.q_proj.weight", {16, 8});
    add(prefix + "self_attn.k_proj.weight", {8, 8});
    add(prefix + "self_attn.v_proj.weight", {8, 8});
    add(prefix + "self_attn.o_proj.weight", {8, 16});
    add(prefix + "mlp.gate_proj.weight", {12, 8});
    add(prefix + "mlp.up_proj.weight", {12, 8});
    add(prefix + "mlp.down_proj.weight", {8, 12});
  }
  return source;
}

absl::StatusOr<ModelWeights> Load(const ModelConfig& config, const TensorSource& source,
                                  std::optional<DType> dtype = std::nullopt) {
  PackingBackend backend;
  return LoadWeights(config, source, backend, PackingBackend::Ops(), dtype);
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& part) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

TEST(WeightsTest, LoadsEveryMatrixAndVector) {
  const auto weights = Load(SmallConfig(), SmallSource());
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->dtype, DType::kF32);
  ASSERT_EQ(weights->layers.size(), 2u);
  const LayerWeights& layer = weights->layers[1];
  EXPECT_EQ(layer.query.weight.out_features, 16);
  EXPECT_EQ(layer.query.weight.in_features, 8);
  EXPECT_EQ(layer.output.weight.in_features, 16);
  EXPECT_EQ(layer.mlp.down.weight.in_features, 12);
  EXPECT_EQ(layer.norms[LayerNorm::kAttentionInput].size(), 8);
  EXPECT_TRUE(layer.query.bias.empty());
  EXPECT_EQ(layer.query.bias.data(), nullptr);
  ASSERT_TRUE(weights->separate_head.has_value());
  EXPECT_EQ(&weights->head(), &*weights->separate_head);
  const int64_t per_layer = 2 * 8 + 2 * 16 * 8 + 2 * 8 * 8 + 3 * 12 * 8;
  EXPECT_EQ(weights->parameters, 2 * 10 * 8 + 8 + 2 * per_layer);
  EXPECT_EQ(weights->bytes, static_cast<size_t>(weights->parameters) * 4);
}

TEST(WeightsTest, MatricesLieSideBySide) {
  auto weights = Load(SmallConfig(), SmallSource());
  ASSERT_TRUE(weights.ok()) << weights.status();
  std::vector<const DeviceBuffer*> matrices;
  for (const LayerWeights& layer : weights->layers) {
    for (const LinearWeights* each : {&layer.query, &layer.key, &layer.value, &layer.output,
                                      &layer.mlp.gate, &layer.mlp.up, &layer.mlp.down}) {
      matrices.push_back(&each->weight.storage);
    }
  }
  std::sort(matrices.begin(), matrices.end(),
            [](const auto* a, const auto* b) { return a->data() < b->data(); });
  for (size_t i = 0; i + 1 < matrices.size(); ++i) {
    const ptrdiff_t gap = matrices[i + 1]->data() - (matrices[i]->data() + matrices[i]->size());
    EXPECT_GE(gap, 0);
    EXPECT_LE(gap, 512) << "between matrices " << i << " and " << i + 1;
  }
  // Each keeps all alive.
  const PackedMatrix kept = std::move(weights->layers[0].query.weight);
  weights = absl::CancelledError("");
  EXPECT_EQ(kept.storage.data()[0], std::byte{0});
}

TEST(WeightsTest, TiedHeadIsTheEmbedding) {
  ModelConfig config = SmallConfig();
  config.tie_word_embeddings = true;
  ZeroSource source = SmallSource();
  const auto with_head = Load(config, source);
  source.tensors.erase("lm_head.weight");
  const auto weights = Load(config, source);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(&weights->head(), &weights->embedding);
  EXPECT_EQ(weights->parameters, with_head->parameters);
}

// As some write a tied model: the matrix has the head's name.
TEST(WeightsTest, ATiedEmbeddingMayBeStoredAsTheHeadAlone) {
  ModelConfig config = SmallConfig();
  for (const auto& [model, head] : {std::pair("model.", "lm_head"),
                                    std::pair("language_model.model.", "language_model.lm_head"),
                                    std::pair("model.language_model.", "lm_head")}) {
    ZeroSource source;
    for (const auto& [name, info] : SmallSource().tensors) {
      source.tensors[absl::StrReplaceAll(name, {{"model.", model}, {"lm_head", head}})] = info;
    }
    source.tensors.erase(absl::StrCat(model, "embed_tokens.weight"));
    source.floats[absl::StrCat(head, ".weight")] = std::vector<float>(80, 3);
    config.tie_word_embeddings = false;
    ExpectError(Load(config, source).status(), absl::StatusCode::kInvalidArgument, "embed_tokens");
    config.tie_word_embeddings = true;
    const auto weights = Load(config, source);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(&weights->head(), &weights->embedding);
    EXPECT_EQ(Unpack(weights->embedding), std::vector<float>(80, 3));
    EXPECT_TRUE(weights->warnings.empty());
  }
}

// As in Transformers 5: what is stored counts for more than what config.json says.
TEST(WeightsTest, ATiedHeadThatIsStoredTooAndDiffersIsUsed) {
  ModelConfig config = SmallConfig();
  config.tie_word_embeddings = true;
  ZeroSource source = SmallSource();
  source.floats["lm_head.weight"] = std::vector<float>(80, 1);
  const auto differs = Load(config, source);
  ASSERT_TRUE(differs.ok()) << differs.status();
  EXPECT_EQ(Unpack(differs->head()), std::vector<float>(80, 1));
  EXPECT_EQ(Unpack(differs->embedding), std::vector<float>(80, 0));
  EXPECT_THAT(
      differs->warnings,
      ::testing::ElementsAre(HasSubstr("lm_head.weight differs from model.embed_tokens.weight")));
  source.floats["model.embed_tokens.weight"] = std::vector<float>(80, 1);
  const auto same = Load(config, source);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_FALSE(same->separate_head.has_value());
  EXPECT_TRUE(same->warnings.empty());
  // Equal codes with other scales are another matrix.
  for (const std::string name : {"lm_head.weight", "model.embed_tokens.weight"}) {
    source.tensors[name].dtype = DType::kF8E4M3;
    source.floats.erase(name);
    source.tensors[name + "_scale"] = {DType::kF32, {1}};
    source.floats[name + "_scale"] = {2};
  }
  EXPECT_FALSE(Load(config, source)->separate_head.has_value());
  source.floats["lm_head.weight_scale"] = {3};
  EXPECT_TRUE(Load(config, source)->separate_head.has_value());
}

// What nothing reads and would change the answers: another config.json belongs to these weights.
TEST(WeightsTest, RefusesTensorsOfTheDecoderThatNothingUses) {
  for (const std::string name :
       {"model.layers.2.input_layernorm.weight", "model.layers.0.self_attn.q_proj.bias",
        "model.layers.1.self_attn.q_norm.weight", "model.layers.0.mlp.up_proj.weight_scale",
        "model.layers.0.mlp.experts.0.up_proj.weight", "lm_head.bias", "model.extra"}) {
    ZeroSource source = SmallSource();
    source.tensors[name] = {DType::kF32, {8}};
    const absl::Status status = Load(SmallConfig(), source).status();
    ExpectError(status, absl::StatusCode::kInvalidArgument,
                "has 1 tensors of the decoder that config.json does not use: " + name + ";");
    EXPECT_EQ(StoredWeightsDType(SmallConfig(), source).status(), status);
    EXPECT_EQ(source.reads, 0);
  }
  // A whole further layer is counted, and its first tensors are named.
  ModelConfig shallow = SmallConfig();
  shallow.layers.resize(1);
  const absl::Status status = Load(shallow, SmallSource()).status();
  ExpectError(status, absl::StatusCode::kInvalidArgument, "has 9 tensors of the decoder");
  ExpectError(status, absl::StatusCode::kInvalidArgument, "model.layers.1.input_layernorm.weight");
  ExpectError(status, absl::StatusCode::kInvalidArgument, ", ..;");
  EXPECT_LT(status.message().size(), 600u);
}

TEST(WeightsTest, LeavesOutLayersForGuessingWithOneLine) {
  ModelConfig config = SmallConfig();
  config.guessing_layers = 1;
  ZeroSource source = SmallSource();
  EXPECT_TRUE(Load(config, source)->warnings.empty());
  for (const char* name : {"enorm", "shared_head.head", "input_layernorm"}) {
    source.tensors[absl::StrCat("model.layers.2.", name, ".weight")] = {DType::kF32, {8}};
  }
  EXPECT_THAT(Load(config, source)->warnings,
              ::testing::ElementsAre(
                  "layers for guessing tokens ahead (multi-token prediction) are left out: 3 "
                  "tensors, model.layers.2.enorm.weight, model.layers.2.input_layernorm.weight, "
                  "model.layers.2.shared_head.head.weight"));
  // No layer behind those that config.json counts.
  source.tensors["model.layers.3.enorm.weight"] = {DType::kF32, {8}};
  ExpectError(Load(config, source).status(), absl::StatusCode::kInvalidArgument,
              "model.layers.3.enorm.weight");
}

TEST(WeightsTest, WarnsOfTensorsThatNeedNotBeUsed) {
  EXPECT_TRUE(Load(SmallConfig(), SmallSource())->warnings.empty());
  ZeroSource source = SmallSource();
  for (const char* name :
       {"model.layers.0.self_attn.rotary_emb.inv_freq", "vision_tower.patch.weight", "score.weight",
        "model.layers.1.self_attn.k_scale", "model.layers.1.mlp.up_proj.input_scale",
        "model.layers.1.self_attn.masked_bias"}) {
    source.tensors[name] = {DType::kF32, {2}};
  }
  const auto weights = Load(SmallConfig(), source);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_THAT(weights->warnings,
              ::testing::ElementsAre(::testing::AllOf(
                  HasSubstr("6 tensors of the checkpoint are not used: "),
                  HasSubstr("model.layers.0.self_attn.rotary_emb.inv_freq, "), HasSubstr(", .."))));
}

// Texts use a projection without its adapters, if the family is made so; otherwise they are part of
// the model.
TEST(WeightsTest, LeavesOutAdaptersForOtherInputs) {
  const ZeroSource plain = SmallSource();
  ZeroSource source;
  for (const auto& [name, info] : plain.tensors) {
    source.tensors[absl::StrReplaceAll(name, {{"_proj.", "_proj.base_layer."}})] = info;
  }
  source.tensors["model.layers.0.self_attn.q_proj.lora_A.vision.weight"] = {DType::kF32, {2, 8}};
  source.tensors["model.embed_tokens_extend.image.weight"] = {DType::kF32, {2}};
  ModelConfig config = SmallConfig();
  EXPECT_FALSE(Load(config, source).ok());
  config.traits.tensors.adapters = true;
  const auto weights = Load(config, source);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_THAT(weights->warnings,
              ::testing::ElementsAre(HasSubstr("2 tensors of the checkpoint are not used: ")));
  ZeroSource merged = SmallSource();
  merged.tensors["model.layers.0.self_attn.q_proj.lora_A.vision.weight"] = {DType::kF32, {2, 8}};
  ExpectError(Load(config, merged).status(), absl::StatusCode::kInvalidArgument, "lora_A.vision");
}

// Of each head, the rows that rope turns come as halves whatever part of them is read.
TEST(WeightsTest, PutsNeighboursThatRopePairsApart) {
  ZeroSource source;
  for (int row = 0; row < 12; ++row) source.floats["m"].push_back(static_cast<float>(row));
  source.floats["v"] = source.floats["m"];
  source.tensors["m"] = {DType::kF32, {12, 1}};
  source.tensors["v"] = {DType::kF32, {12}};
  MatrixReader reader(source, 128, 128);
  const HeadOrder heads = {.rows = 6, .rotated = 4};
  const std::vector<float> expected = {0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11};
  const StoredMatrix matrix = {"m", {12, 1}, 12, 1, 0, 0, 1, false, heads};
  for (int64_t first = 0; first < 12; ++first) {
    for (int64_t count = 1; first + count <= 12; ++count) {
      const auto rows = reader.Read(matrix, first, count);
      ASSERT_TRUE(rows.ok()) << rows.status();
      const auto* values = static_cast<const float*>(rows->data);
      EXPECT_EQ(std::vector<float>(values, values + count),
                std::vector<float>(expected.begin() + first, expected.begin() + first + count));
    }
  }
  EXPECT_EQ(*reader.Read({"v", {12}, 12, 0, 0, 1, heads}), expected);
}

TEST(WeightsTest, GoldenValuesArriveUnchanged) {
  const std::string directory = testing::TestFile("golden/llama_windows").string();
  const ModelConfig config = LoadModelConfig(directory).value();
  const auto source = SafetensorsCheckpoint::Open(directory).value();
  const auto weights = Load(config, *source);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->dtype, DType::kF16);
  const LayerWeights& layer = weights->layers[3];
  const std::string prefix = "model.layers.3.";
  EXPECT_EQ(Unpack(layer.key.weight), *ReadAsFloat(*source, prefix + "self_attn.k_proj.weight"));
  EXPECT_EQ(Unpack(layer.mlp.gate.weight), *ReadAsFloat(*source, prefix + "mlp.gate_proj.weight"));
  EXPECT_EQ(Unpack(weights->head()), *ReadAsFloat(*source, "model.embed_tokens.weight"));
  const auto bias = ReadAsFloat(*source, prefix + "self_attn.v_proj.bias").value();
  EXPECT_EQ(std::vector<float>(layer.value.bias.data(),
                               layer.value.bias.data() + layer.value.bias.size()),
            bias);
  EXPECT_EQ(layer.output.bias.size(), config.hidden_size);
  EXPECT_TRUE(layer.mlp.gate.bias.empty());
}

// Ops find an expert's weights by its index; the lists are memory of the backend too.
TEST(WeightsTest, ExpertsAreListedWithTheirAddresses) {
  for (const std::string name : {"gpt_oss_bf16", "qwen3_moe"}) {
    const std::string directory = testing::TestFile("golden/" + name).string();
    const ModelConfig config = LoadModelConfig(directory).value();
    const auto source = SafetensorsCheckpoint::Open(directory).value();
    const auto weights = Load(config, *source);
    ASSERT_TRUE(weights.ok()) << weights.status();
    size_t listed = 0;
    for (size_t i = 0; i < weights->layers.size(); ++i) {
      const ExpertsWeights& experts = weights->layers[i].experts;
      const auto count = static_cast<size_t>(config.layers[i].experts ? config.experts.count : 0);
      ASSERT_EQ(experts.each.size(), count);
      for (const auto& [list, projection] : {std::pair(&experts.gate, &GatedWeights::gate),
                                             std::pair(&experts.up, &GatedWeights::up),
                                             std::pair(&experts.down, &GatedWeights::down)}) {
        ASSERT_EQ(list->matrices.size(), count);
        ASSERT_EQ(list->addresses.size(), count * sizeof(ExpertAddress));
        listed += list->addresses.size();
        for (size_t e = 0; e < count; ++e) {
          const LinearWeights& expected = experts.each[e].*projection;
          const ExpertAddress& address = list->addresses.as<ExpertAddress>()[e];
          EXPECT_EQ(list->matrices[e], &expected.weight);
          EXPECT_EQ(list->biases[e], expected.bias.data());
          EXPECT_EQ(address.weight, expected.weight.storage.data());
          EXPECT_EQ(address.bias, expected.bias.data());
          EXPECT_EQ(address.bias == nullptr, !config.experts.biases);
        }
      }
    }
    size_t vectors_and_matrices = 0;
    for (const RequiredTensor& tensor : RequiredTensors(config)) {
      int64_t elements = 1;
      for (const int64_t size : tensor.shape) elements *= size;
      // Vectors become float32: norms, biases and sinks.
      const bool matrix = tensor.shape.size() > 1 && !absl::EndsWith(tensor.name, "_bias");
      vectors_and_matrices +=
          static_cast<size_t>(elements) * (matrix ? DTypeSize(weights->dtype) : sizeof(float));
    }
    EXPECT_EQ(weights->bytes, vectors_and_matrices + listed) << name;
  }
}

TEST(WeightsTest, PacksAsStoredOrAsAsked) {
  for (const DType stored : {DType::kF32, DType::kBF16, DType::kF16}) {
    const ZeroSource source = SmallSource(stored);
    EXPECT_EQ(StoredWeightsDType(SmallConfig(), source).value(), stored);
    EXPECT_EQ(Load(SmallConfig(), source)->layers[0].mlp.up.weight.dtype, stored);
    for (const DType asked : {DType::kF32, DType::kBF16, DType::kF16}) {
      const auto weights = Load(SmallConfig(), source, asked);
      EXPECT_EQ(weights->dtype, asked);
      EXPECT_EQ(weights->embedding.dtype, asked);
    }
  }
}

TEST(WeightsTest, EachMatrixStaysAsItIsStoredAndTheLayersGiveTheName) {
  ZeroSource source = SmallSource(DType::kBF16);
  source.tensors["model.norm.weight"].dtype = DType::kF32;  // a vector: has no say
  source.tensors["model.embed_tokens.weight"].dtype = DType::kF32;
  source.tensors["lm_head.weight"].dtype = DType::kF16;
  source.tensors["model.layers.0.self_attn.k_proj.weight"].dtype = DType::kF32;
  EXPECT_EQ(StoredWeightsDType(SmallConfig(), source).value(), DType::kBF16);
  const auto weights = Load(SmallConfig(), source);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->dtype, DType::kBF16);
  EXPECT_EQ(weights->embedding.dtype, DType::kF32);
  EXPECT_EQ(weights->stored_embedding_dtype, DType::kF32);
  EXPECT_EQ(weights->head().dtype, DType::kF16);
  EXPECT_EQ(weights->layers[0].key.weight.dtype, DType::kF32);
  EXPECT_EQ(weights->layers[1].key.weight.dtype, DType::kBF16);
  EXPECT_EQ(weights->bytes, 4 * 10 * 8 + 2 * 10 * 8 + 4 * 8 * 8 + 2 * 8 * 8 +
                                2 * 2 * (2 * 16 * 8 + 8 * 8 + 3 * 12 * 8) + 4 * (2 * 2 * 8 + 8));
}

// Two experts in every layer, all tensors in bf16.
ModelConfig ExpertsConfigOfTwo(ZeroSource& source) {
  ModelConfig config = SmallConfig();
  config.experts.count = 2;
  config.experts.routing.chosen = 1;
  config.experts.intermediate_size = 12;
  for (LayerConfig& layer : config.layers) layer.experts = true;
  for (const RequiredTensor& tensor : RequiredTensors(config)) {
    source.tensors[tensor.name] = {DType::kBF16, tensor.shape};
  }
  return config;
}

// Ops find a projection of all experts by one list of addresses, so it has one dtype.
TEST(WeightsTest, AProjectionOfALayersExpertsHasOneDType) {
  ZeroSource source;
  const ModelConfig config = ExpertsConfigOfTwo(source);
  const std::string first = "model.layers.0.mlp.experts.0.";
  const std::string second = "model.layers.0.mlp.experts.1.";
  const auto to_float8 = [&](const std::string& name) {
    source.tensors[name].dtype = DType::kF8E4M3;
    source.tensors[name + "_scale"] = {DType::kF32, {1}};
  };
  source.tensors[second + "gate_proj.weight"].dtype = DType::kF16;
  to_float8(first + "up_proj.weight");
  to_float8(first + "down_proj.weight");
  to_float8(second + "down_proj.weight");
  const auto weights = Load(config, source);
  ASSERT_TRUE(weights.ok()) << weights.status();
  for (const GatedWeights& expert : weights->layers[0].experts.each) {
    EXPECT_EQ(expert.gate.weight.dtype, DType::kF32);
    EXPECT_EQ(expert.up.weight.dtype, DType::kBF16);
    EXPECT_EQ(expert.down.weight.dtype, DType::kF8E4M3);
  }
  EXPECT_EQ(weights->layers[0].router.weight.dtype, DType::kBF16);
  for (const GatedWeights& expert : weights->layers[1].experts.each) {
    EXPECT_EQ(expert.down.weight.dtype, DType::kBF16);
  }
  EXPECT_EQ(Load(config, source, DType::kF16)->layers[0].experts.each[1].gate.weight.dtype,
            DType::kF16);
}

TEST(WeightsTest, ListsMissingTensors) {
  ZeroSource source = SmallSource();
  source.tensors.erase("lm_head.weight");
  ExpectError(Load(SmallConfig(), source).status(), absl::StatusCode::kInvalidArgument,
              "lacks 1 of the 21 tensors that config.json asks for: lm_head.weight");
  ModelConfig deeper = SmallConfig();
  deeper.layers.resize(4, deeper.layers.front());
  const auto status = Load(deeper, source).status();
  ExpectError(status, absl::StatusCode::kInvalidArgument, "lacks 19 of the 39 tensors");
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.layers.2.self_attn.q_proj.weight"));
  EXPECT_TRUE(absl::EndsWith(status.message(), ", .."));
  EXPECT_LT(status.message().size(), 500u);
  ModelConfig biased = SmallConfig();
  biased.mlp_bias = true;
  ExpectError(Load(biased, SmallSource()).status(), absl::StatusCode::kInvalidArgument,
              "model.layers.0.mlp.gate_proj.bias");
}

TEST(WeightsTest, NamesShapesFoundAndExpected) {
  ModelConfig config = SmallConfig();
  config.vocabulary = 11;
  ExpectError(Load(config, SmallSource()).status(), absl::StatusCode::kInvalidArgument,
              "tensor model.embed_tokens.weight has the shape [10, 8]; config.json asks for "
              "[11, 8]");
  ZeroSource source = SmallSource();
  source.tensors["model.norm.weight"].shape = {1, 8};
  ExpectError(Load(SmallConfig(), source).status(), absl::StatusCode::kInvalidArgument,
              "model.norm.weight has the shape [1, 8]; config.json asks for [8]");
}

TEST(WeightsTest, RefusesElementTypesThatNoMatrixHas) {
  ZeroSource source = SmallSource();
  source.tensors["model.layers.1.mlp.up_proj.weight"].dtype = DType::kI8;
  ExpectError(Load(SmallConfig(), source).status(), absl::StatusCode::kUnimplemented,
              "model.layers.1.mlp.up_proj.weight is stored as int8; supported: f32, bf16, f16");
  source.tensors["model.layers.1.mlp.up_proj.weight"].dtype = DType::kF8E4M3;
  ExpectError(Load(SmallConfig(), source).status(), absl::StatusCode::kInvalidArgument,
              "model.layers.1.mlp.up_proj.weight is fp8_e4m3 without its scale; allowed: a float "
              "tensor model.layers.1.mlp.up_proj.weight_scale or");
}

TEST(WeightsTest, RecognisesQuantizedCheckpoints) {
  ZeroSource source = SmallSource();
  source.tensors.erase("model.layers.0.mlp.up_proj.weight");
  source.tensors["model.layers.0.mlp.up_proj.qweight"] = {DType::kI8, {12, 8}};
  ExpectError(Load(SmallConfig(), source).status(), absl::StatusCode::kUnimplemented,
              "shows a quantized checkpoint (GPTQ, AWQ)");
}

TEST(WeightsTest, ComparesTheSizeWithTheMemoryBeforeReading) {
  ModelConfig config = SmallConfig();
  config.vocabulary = 1 << 24;
  ZeroSource source = SmallSource();
  source.tensors["model.embed_tokens.weight"].shape = {1 << 24, 8};
  source.tensors["lm_head.weight"].shape = {1 << 24, 8};
  PackingBackend backend(size_t{1} << 30);
  const auto status =
      LoadWeights(config, source, backend, PackingBackend::Ops(), std::nullopt).status();
  ExpectError(status, absl::StatusCode::kResourceExhausted, "the device has 1073741824");
  EXPECT_EQ(source.reads, 0);
}

TEST(WeightsTest, PassesOnFailuresOfMemoryAndFiles) {
  PackingBackend backend;
  backend.largest_allocation = 100;
  ExpectError(
      LoadWeights(SmallConfig(), SmallSource(), backend, PackingBackend::Ops(), std::nullopt)
          .status(),
      absl::StatusCode::kResourceExhausted, "too much");
  ZeroSource source = SmallSource();
  source.unreadable = "model.layers.1.mlp.down_proj.weight";
  ExpectError(Load(SmallConfig(), source).status(), absl::StatusCode::kDataLoss, "truncated");
}

// A source whose tensors hold ones but for one number. Plain ones are `dtype`.
class OneNumberSource final : public TensorSource {
 public:
  OneNumberSource(std::string name, size_t at, float number, DType dtype)
      : name_(std::move(name)), at_(at), number_(number), shapes_(SmallSource(dtype)) {}

  std::vector<std::string> Names() const override { return shapes_.Names(); }
  bool Has(absl::string_view name) const override { return shapes_.Has(name); }
  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override {
    return shapes_.Describe(name);
  }
  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override {
    const TensorInfo info = shapes_.Describe(name).value();
    std::vector<float> values(static_cast<size_t>(info.elements()), 1);
    if (name == name_) values[at_] = number_;
    ConvertFromFloat(info.dtype, values.data(), destination.data(), values.size());
    return absl::OkStatus();
  }

 private:
  const std::string name_;
  const size_t at_;
  const float number_;
  const ZeroSource shapes_;
};

// One number that is none spoils every answer; it is named wherever it lies, in every dtype.
TEST(WeightsTest, RefusesNumbersThatAreNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const DType stored : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const std::optional<DType> asked :
         {std::optional<DType>(), std::optional(DType::kF32), std::optional(DType::kBF16),
          std::optional(DType::kF16), std::optional(DType::kI8)}) {
      for (const float number : {kInfinity, -kInfinity, kNan, -kNan}) {
        const auto status = [&](const char* name, size_t at) {
          return Load(SmallConfig(), OneNumberSource(name, at, number, stored), asked).status();
        };
        ExpectError(status("model.layers.1.mlp.down_proj.weight", 12 * 5 + 11),
                    absl::StatusCode::kInvalidArgument,
                    "tensor model.layers.1.mlp.down_proj.weight has 1 weights that are NaN or "
                    "infinite in 1 of its 8 rows, the first is row 5;");
        ExpectError(status("model.embed_tokens.weight", 0), absl::StatusCode::kInvalidArgument,
                    "the first is row 0;");
        ExpectError(status("model.layers.0.input_layernorm.weight", 7),
                    absl::StatusCode::kInvalidArgument,
                    "model.layers.0.input_layernorm.weight has 1 of 8 numbers that are NaN or "
                    "infinite, the first is number 7;");
      }
    }
  }
}

// Finite numbers that become infinite in the dtype asked for are no better.
TEST(WeightsTest, RefusesNumbersBeyondTheDTypeAskedFor) {
  const auto status = [&](float number, DType stored, DType asked) {
    return Load(SmallConfig(), OneNumberSource("lm_head.weight", 9, number, stored), asked)
        .status();
  };
  for (const DType stored : {DType::kF32, DType::kBF16}) {
    for (const float number : {65536.0f, -1e30f}) {
      ExpectError(
          status(number, stored, DType::kF16), absl::StatusCode::kInvalidArgument,
          "tensor lm_head.weight has 1 weights beyond the range of f16 in 1 of its 10 rows, "
          "the first is row 1; ask for --weights-dtype bf16");
    }
    EXPECT_TRUE(status(-65280, stored, DType::kF16).ok());
    EXPECT_TRUE(status(1e30f, stored, DType::kBF16).ok());
  }
  ExpectError(status(65520, DType::kF32, DType::kF16), absl::StatusCode::kInvalidArgument, "f16");
  EXPECT_TRUE(status(65519, DType::kF32, DType::kF16).ok());
  ExpectError(status(std::numeric_limits<float>::max(), DType::kF32, DType::kBF16),
              absl::StatusCode::kInvalidArgument, "beyond the range of bf16");
  EXPECT_TRUE(status(65504, DType::kF16, DType::kF16).ok());
}

TEST(WeightsTest, RefusesCodesAndScalesOfNoNumber) {
  const std::string name = "model.layers.0.mlp.down_proj.weight";  // [8, 12]
  ZeroSource source = SmallSource();
  source.tensors[name].dtype = DType::kF8E4M3;
  source.tensors[name + "_scale"] = {DType::kF32, {8}};
  source.float8_byte = std::byte{0x40};
  source.floats[name + "_scale"] = std::vector<float>(8, 1);
  EXPECT_TRUE(Load(SmallConfig(), source).ok());
  for (const float scale : {std::numeric_limits<float>::infinity(), 1e38f}) {
    source.floats[name + "_scale"][3] = scale;
    ExpectError(Load(SmallConfig(), source).status(), absl::StatusCode::kInvalidArgument,
                name +
                    " has codes or scales of weights that are NaN or infinite in 1 of its 8 rows, "
                    "the first is row 3;");
  }
  source.floats[name + "_scale"][3] = 1;
  source.float8_byte = std::byte{0x7f};
  ExpectError(Load(SmallConfig(), source).status(), absl::StatusCode::kInvalidArgument,
              "in 8 of its 8 rows");
}

// Float8 of one value with scales of every kind; the packed matrix shows which scale met which
// element.
TEST(WeightsTest, MultipliesFloat8ByItsScales) {
  const std::string name = "model.layers.0.mlp.down_proj.weight";  // [8, 12]
  struct Case {
    std::vector<int64_t> shape;
    const char* suffix;
  };
  for (const Case& c : {Case{{}, "_scale"}, Case{{1}, "_scale_inv"}, Case{{8}, "_scale"},
                        Case{{8, 1}, "_scale"}, Case{{2, 3}, "_scale_inv"}}) {
    ZeroSource source = SmallSource();
    source.tensors[name].dtype = DType::kF8E4M3;
    source.tensors[name + c.suffix] = {DType::kF32, c.shape};
    source.float8_byte = std::byte{0x40};  // 2.0 in e4m3
    source.floats[name + c.suffix] = {1, 2, 3, 4, 5, 6, 7, 8};
    ModelConfig config = SmallConfig();
    config.fp8_block_rows = 5;
    config.fp8_block_cols = 4;
    const auto weights = Load(config, source, DType::kF32);
    ASSERT_TRUE(weights.ok()) << weights.status();
    const std::vector<float> values = Unpack(weights->layers[0].mlp.down.weight);
    for (int64_t row = 0; row < 8; ++row) {
      for (int64_t col = 0; col < 12; ++col) {
        const bool single = c.shape.empty() || c.shape[0] == 1;
        const int64_t scale = single ? 1 : c.shape[0] == 8 ? row + 1 : row / 5 * 3 + col / 4 + 1;
        EXPECT_EQ(values[row * 12 + col], 2.0f * scale) << row << " " << col;
      }
    }
  }
}

// One scale for all of a matrix, or one for each row: it stays as it is stored, beside matrices of
// other types, and half as large as in bf16.
TEST(WeightsTest, Float8OfTensorsAndRowsStaysFloat8) {
  for (const DType dtype : {DType::kF8E4M3, DType::kF8E5M2}) {
    ZeroSource source = SmallSource(DType::kBF16);
    source.float8_byte = std::byte{0x40};  // 2.0 in both
    float next = 1;
    for (const RequiredTensor& tensor : RequiredTensors(SmallConfig())) {
      if (!absl::EndsWith(tensor.name, "_proj.weight")) continue;
      const bool rows = absl::StrContains(tensor.name, "v_proj");
      source.tensors[tensor.name].dtype = dtype;
      const std::string scale = tensor.name + "_scale";
      source.tensors[scale] = {DType::kF32,
                               rows ? std::vector<int64_t>{8, 1} : std::vector<int64_t>{}};
      for (int64_t i = 0; i < (rows ? 8 : 1); ++i) source.floats[scale].push_back(next++);
    }
    const auto weights = Load(SmallConfig(), source);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(weights->dtype, dtype);
    EXPECT_EQ(weights->error.weights, 0) << "nothing was quantised";
    EXPECT_EQ(weights->embedding.dtype, DType::kBF16);
    EXPECT_EQ(weights->head().dtype, DType::kBF16);
    for (size_t i = 0; i < weights->layers.size(); ++i) {
      const LayerWeights& layer = weights->layers[i];
      const std::string prefix = absl::StrCat("model.layers.", i, ".self_attn.");
      for (const auto& [name, matrix] :
           {std::pair("q_proj", &layer.query.weight), std::pair("k_proj", &layer.key.weight),
            std::pair("v_proj", &layer.value.weight), std::pair("o_proj", &layer.output.weight)}) {
        EXPECT_EQ(matrix->dtype, dtype);
        const std::vector<float>& scales = source.floats.at(prefix + name + ".weight_scale");
        const std::vector<float> values = Unpack(*matrix);
        for (size_t v = 0; v < values.size(); ++v) {
          const size_t row = v / static_cast<size_t>(matrix->in_features);
          EXPECT_EQ(values[v], 2 * scales[scales.size() == 1 ? 0 : row]) << name << " " << v;
        }
      }
    }
    EXPECT_EQ(Load(SmallConfig(), source, DType::kBF16)->layers[0].query.weight.dtype,
              DType::kBF16);
  }
}

TEST(WeightsTest, Float8InBlocksBecomesBf16) {
  ZeroSource source = SmallSource(DType::kBF16);
  for (const RequiredTensor& tensor : RequiredTensors(SmallConfig())) {
    if (!absl::EndsWith(tensor.name, "_proj.weight")) continue;
    source.tensors[tensor.name].dtype = DType::kF8E4M3;
    source.tensors[tensor.name + "_scale_inv"] = {
        DType::kF32, {(tensor.shape[0] + 4) / 5, (tensor.shape[1] + 3) / 4}};
  }
  ModelConfig config = SmallConfig();
  config.fp8_block_rows = 5;
  config.fp8_block_cols = 4;
  const auto weights = Load(config, source);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->dtype, DType::kBF16);
  EXPECT_EQ(weights->layers[1].mlp.down.weight.dtype, DType::kBF16);
}

TEST(WeightsTest, RefusesFloat8ScalesOfAnotherShape) {
  ZeroSource source = SmallSource();
  source.tensors["model.layers.0.mlp.down_proj.weight"].dtype = DType::kF8E4M3;
  source.tensors["model.layers.0.mlp.down_proj.weight_scale"] = {DType::kF32, {3, 2}};
  ExpectError(Load(SmallConfig(), source).status(), absl::StatusCode::kInvalidArgument,
              "down_proj.weight_scale has the shape [3, 2]; allowed: [1], [8, 1], or [1, 1] for "
              "blocks of 128 x 128");
}

}  // namespace
}  // namespace annulus
