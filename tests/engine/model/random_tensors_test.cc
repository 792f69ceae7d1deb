#include "engine/model/made/random_tensors.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/model/weights/weights.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

ModelConfig RandomConfig() {
  ModelConfig config;
  config.vocabulary = 301;
  config.hidden_size = 48;
  config.intermediate_size = 80;
  config.layers.resize(2);
  SetAttention(config, {.heads = 4, .kv_heads = 2, .k_dim = 12, .v_dim = 12});
  config.attention_bias = true;
  return config;
}

std::vector<std::byte> BytesOf(const TensorSource& source, const std::string& name) {
  std::vector<std::byte> bytes(source.Describe(name)->bytes());
  EXPECT_TRUE(source.Read(name, bytes).ok());
  return bytes;
}

TEST(RandomTensors, HasEveryTensorThatTheDecoderNeeds) {
  const auto source = MakeRandomTensors(RandomConfig(), 1);
  std::set<std::string> names;
  for (const RequiredTensor& tensor : RequiredTensors(RandomConfig())) {
    names.insert(tensor.name);
    ASSERT_TRUE(source->Has(tensor.name)) << tensor.name;
    EXPECT_EQ(source->Describe(tensor.name)->shape, tensor.shape);
  }
  EXPECT_TRUE(names.contains("model.layers.1.self_attn.q_proj.bias"));
  EXPECT_TRUE(names.contains("lm_head.weight"));
  const std::vector<std::string> all = source->Names();
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()), names);
  EXPECT_FALSE(source->Has("lm_head.bias"));
  EXPECT_EQ(source->Describe("lm_head.bias").status().code(), absl::StatusCode::kNotFound);
}

TEST(RandomTensors, DependOnSeedAndNameAlone) {
  const auto first = MakeRandomTensors(RandomConfig(), 1);
  const auto again = MakeRandomTensors(RandomConfig(), 1);
  const auto other = MakeRandomTensors(RandomConfig(), 2);
  const std::string gate = "model.layers.0.mlp.gate_proj.weight";
  EXPECT_EQ(BytesOf(*first, gate), BytesOf(*again, gate));
  EXPECT_EQ(BytesOf(*first, gate), BytesOf(*first, gate));
  EXPECT_NE(BytesOf(*first, gate), BytesOf(*other, gate));
  EXPECT_NE(BytesOf(*first, gate), BytesOf(*first, "model.layers.1.mlp.gate_proj.weight"));
}

TEST(RandomTensors, ARangeIsPartOfTheWhole) {
  const auto source = MakeRandomTensors(RandomConfig(), 1);
  const std::string head = "lm_head.weight";
  const auto whole = BytesOf(*source, head);
  const size_t width = whole.size() / (301 * 48);
  for (const size_t first : {0, 4, 1021, 2048, 14000}) {
    std::vector<std::byte> part(width * 77);
    ASSERT_TRUE(source->ReadRange(head, first * width, part).ok());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first * width)) << first;
  }
}

TEST(RandomTensors, KeepTheSizeOfActivations) {
  ModelConfig config = RandomConfig();
  config.stored_dtype = DType::kF32;
  const auto source = MakeRandomTensors(config, 3);
  const auto head = ReadAsFloat(*source, "lm_head.weight");  // [301, 48]
  ASSERT_TRUE(head.ok());
  double sum = 0;
  double squares = 0;
  for (const float value : *head) {
    EXPECT_LE(std::abs(value), std::sqrt(3.0f / 48) * 1.0001f);
    sum += value;
    squares += double{value} * value;
  }
  const double count = static_cast<double>(head->size());
  // Standard errors: 1/sqrt(48 n) of the mean; 2/(48 sqrt(5 n)) of the variance, which is 1/48.
  EXPECT_LT(std::abs(sum / count), 5 / std::sqrt(48 * count));
  EXPECT_NEAR(squares / count, 1.0 / 48, 5 * 2 / (48 * std::sqrt(5 * count)));
  const auto norm = ReadAsFloat(*source, "model.norm.weight");
  for (const float value : *norm) EXPECT_EQ(value, 1);
  const auto bias = ReadAsFloat(*source, "model.layers.0.self_attn.k_proj.bias");
  for (const float value : *bias) EXPECT_LE(std::abs(value), 0.1001f);
}

TEST(RandomTensors, HaveTheDtypeOfTheConfiguration) {
  ModelConfig config = RandomConfig();
  EXPECT_EQ(MakeRandomTensors(config, 1)->Describe("model.norm.weight")->dtype, DType::kBF16);
  config.stored_dtype = DType::kF16;
  EXPECT_EQ(MakeRandomTensors(config, 1)->Describe("model.norm.weight")->dtype, DType::kF16);
}

}  // namespace
}  // namespace annulus
