#include "engine/model/made/convert_model.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/files/safetensors.h"
#include "engine/model/model_config.h"
#include "engine/model/weights/weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/float8_directory.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr DType kAll[] = {DType::kF32,    DType::kBF16, DType::kF16,   DType::kF8E4M3,
                          DType::kF8E5M2, DType::kI8,   DType::kI4G32, DType::kI4G64,
                          DType::kQ8_0,   DType::kQ4_0, DType::kQ4_1};

class ConvertModelTest : public ::testing::Test {
 protected:
  ConvertModelTest() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  ModelWeights Load(const std::string& directory, const OpTable& ops, std::optional<DType> dtype) {
    const auto config = LoadModelConfig(directory);
    const auto source = SafetensorsCheckpoint::Open(directory);
    EXPECT_TRUE(config.ok() && source.ok()) << config.status() << source.status();
    auto weights = LoadWeights(*config, **source, *backend_, ops, dtype);
    EXPECT_TRUE(weights.ok()) << weights.status();
    return *std::move(weights);
  }

  static void ExpectSame(const PackedMatrix& x, const PackedMatrix& y) {
    EXPECT_EQ(x.dtype, y.dtype);
    ASSERT_EQ(x.storage.size(), y.storage.size());
    EXPECT_EQ(std::memcmp(x.storage.data(), y.storage.data(), x.storage.size()), 0);
  }
  static void ExpectSame(const GatedWeights& x, const GatedWeights& y) {
    ExpectSame(x.gate.weight, y.gate.weight);
    ExpectSame(x.up.weight, y.up.weight);
    ExpectSame(x.down.weight, y.down.weight);
  }
  // Every matrix of two models has the same bytes.
  static void ExpectSame(const ModelWeights& a, const ModelWeights& b) {
    EXPECT_EQ(a.stored_embedding_dtype, b.stored_embedding_dtype);
    EXPECT_EQ(a.parameters, b.parameters);
    ExpectSame(a.embedding, b.embedding);
    ExpectSame(a.head(), b.head());
    ASSERT_EQ(a.layers.size(), b.layers.size());
    for (size_t i = 0; i < a.layers.size(); ++i) {
      const LayerWeights& x = a.layers[i];
      const LayerWeights& y = b.layers[i];
      ExpectSame(x.query.weight, y.query.weight);
      ExpectSame(x.key.weight, y.key.weight);
      ExpectSame(x.value.weight, y.value.weight);
      ExpectSame(x.output.weight, y.output.weight);
      ASSERT_EQ(x.experts.each.size(), y.experts.each.size());
      ExpectSame(x.mlp, y.mlp);
      ExpectSame(x.shared_gate.weight, y.shared_gate.weight);
      if (!x.experts.each.empty()) {
        ExpectSame(x.router.weight, y.router.weight);
      }
      for (size_t e = 0; e < x.experts.each.size(); ++e) {
        ExpectSame(x.experts.each[e], y.experts.each[e]);
      }
    }
  }

  std::string Out(const std::string& name) { return (temporary_.path() / name).string(); }

  testing::TempDirectory temporary_;
  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
};

const std::string kModel = testing::TestFile("golden/llama_gqa_bf16").string();

TEST_F(ConvertModelTest, LoadsToTheSameBitsAsQuantisingAtLoad) {
  for (const DType dtype : kAll) {
    SCOPED_TRACE(DTypeName(dtype));
    const std::string out = Out(std::string(DTypeName(dtype)));
    const auto conversion = ConvertModel(kModel, dtype, out);
    ASSERT_TRUE(conversion.ok()) << conversion.status();
    for (const OpTable* ops : registry_.Available("cpu")) {
      SCOPED_TRACE(ops->name);
      const ModelWeights ahead = Load(out, *ops, std::nullopt);
      const ModelWeights loaded = Load(kModel, *ops, dtype);
      EXPECT_EQ(ahead.dtype, dtype);
      ExpectSame(loaded, ahead);
      EXPECT_EQ(ahead.error.relative(), 0);  // nothing is lost a second time
      EXPECT_NEAR(conversion->relative_error, loaded.error.relative(), 1e-12);
    }
  }
}

// Fused projections, stacked experts as MXFP4 and as bf16, single experts, blocks of float8,
// shards, rows that rope pairs as neighbours, experts stacked as they are multiplied.
TEST_F(ConvertModelTest, ConvertsEveryFormOfCheckpoint) {
  const OpTable& ops = *registry_.Available("cpu").front();
  for (const char* family :
       {"phi3", "gpt_oss", "gpt_oss_bf16", "mixtral", "llama_fp8", "gemma2", "llama_rope3_sharded",
        "glm4", "granite4", "phi4_multimodal", "gemma4", "gemma4_moe", "gemma3n"}) {
    for (const DType dtype : {DType::kI8, DType::kF8E4M3, DType::kI4G32}) {
      SCOPED_TRACE(absl::StrCat(family, " ", DTypeName(dtype)));
      const std::string model = testing::TestFile(absl::StrCat("golden/", family)).string();
      const std::string out = Out(absl::StrCat(family, DTypeName(dtype)));
      const auto conversion = ConvertModel(model, dtype, out);
      ASSERT_TRUE(conversion.ok()) << conversion.status();
      const ModelWeights ahead = Load(out, ops, std::nullopt);
      EXPECT_EQ(ahead.dtype, dtype);
      ExpectSame(Load(model, ops, dtype), ahead);
    }
  }
  const std::string stacked = testing::TestFile("golden/gpt_oss").string();
  EXPECT_EQ(ConvertModel(stacked, DType::kBF16, Out("plain")).status().code(),
            absl::StatusCode::kUnimplemented);
}

// Float8 with a scale for each tensor or row: to float8 it is copied, to all else converted.
TEST_F(ConvertModelTest, CopiesFloat8OfTensorsAndRows) {
  const OpTable& ops = *registry_.Available("cpu").front();
  for (const auto kind : {testing::Float8Scales::kTensor, testing::Float8Scales::kRow}) {
    const testing::TempDirectory stored;
    testing::WriteFloat8Directory(kModel, kind, stored);
    const std::string from = stored.path().string();
    for (const DType dtype : {DType::kF8E4M3, DType::kI8, DType::kBF16}) {
      SCOPED_TRACE(DTypeName(dtype));
      const std::string out = Out(absl::StrCat(static_cast<int>(kind), DTypeName(dtype)));
      const auto conversion = ConvertModel(from, dtype, out);
      ASSERT_TRUE(conversion.ok()) << conversion.status();
      const ModelWeights ahead = Load(out, ops, std::nullopt);
      ExpectSame(Load(from, ops, dtype), ahead);
      EXPECT_EQ(conversion->matrices[1].from, DType::kF8E4M3);
      EXPECT_EQ(conversion->matrices[1].to, dtype);
      EXPECT_EQ(conversion->matrices[1].relative_error > 0, dtype == DType::kI8);
      if (dtype != DType::kF8E4M3) continue;
      const ModelWeights kept = Load(from, ops, std::nullopt);
      for (size_t i = 0; i < kept.layers.size(); ++i) {
        ExpectSame(kept.layers[i].key.weight, ahead.layers[i].key.weight);
        ExpectSame(kept.layers[i].mlp, ahead.layers[i].mlp);
      }
    }
  }
}

TEST_F(ConvertModelTest, WritesAWholeModelDirectoryAndNothingElse) {
  const auto conversion = ConvertModel(kModel, DType::kI4G32, Out("q4"));
  ASSERT_TRUE(conversion.ok()) << conversion.status();
  EXPECT_GT(conversion->relative_error, 0.01);
  EXPECT_LT(conversion->relative_error, 0.15);
  ASSERT_FALSE(conversion->matrices.empty());
  EXPECT_EQ(conversion->matrices[0].to, DType::kI8);  // the embedding
  EXPECT_EQ(conversion->matrices[1].to, DType::kI4G32);
  EXPECT_TRUE(fs::exists(Out("q4") + "/config.json"));
  std::ifstream manifest(Out("q4") + "/annulus_conversion.json");
  const std::string text{std::istreambuf_iterator<char>(manifest), {}};
  EXPECT_THAT(text, HasSubstr("\"weights_dtype\": \"int4_g32\""));
  EXPECT_EQ(std::distance(fs::directory_iterator(temporary_.path()), {}), 1);  // nothing partial
}

TEST_F(ConvertModelTest, RefusesToReplaceAnything) {
  fs::create_directory(Out("taken"));
  const auto conversion = ConvertModel(kModel, DType::kI8, Out("taken"));
  EXPECT_EQ(conversion.status().code(), absl::StatusCode::kAlreadyExists) << conversion.status();
  fs::create_symlink("nowhere", Out("link"));
  EXPECT_EQ(ConvertModel(kModel, DType::kI8, Out("link")).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(std::distance(fs::directory_iterator(temporary_.path()), {}), 2);
}

TEST_F(ConvertModelTest, LeavesNothingBehindWhenItFails) {
  fs::copy(kModel, Out("bad"), fs::copy_options::recursive);
  // An infinite weight, in the last matrix of the file.
  std::fstream file(Out("bad") + "/model.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  uint64_t header = 0;
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  file.seekp(static_cast<std::streamoff>(8 + header + 1000));
  const uint16_t infinity[2] = {0x7f80, 0x7f80};
  file.write(reinterpret_cast<const char*>(infinity), sizeof(infinity));
  file.close();
  for (const DType dtype : {DType::kI8, DType::kBF16, DType::kF16}) {
    const auto conversion = ConvertModel(Out("bad"), dtype, Out("out"));
    EXPECT_EQ(conversion.status().code(), absl::StatusCode::kInvalidArgument)
        << conversion.status();
    EXPECT_THAT(std::string(conversion.status().message()),
                HasSubstr(" has 2 weights that are NaN or infinite in 1 of its "));
    EXPECT_EQ(std::distance(fs::directory_iterator(temporary_.path()), {}), 1);
  }
}

// Scales from a hostile file: an infinite one is refused, whichever table packs it.
TEST_F(ConvertModelTest, RefusesScalesThatAreNotFinite) {
  ASSERT_TRUE(ConvertModel(kModel, DType::kI8, Out("q8")).ok());
  const std::string path = Out("q8") + "/model.safetensors";
  const auto source = SafetensorsCheckpoint::Open(Out("q8")).value();
  // The first tensor's codes come first, then its scales.
  const auto info = source->Describe("model.embed_tokens.weight").value();
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  uint64_t header = 0;
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  file.seekp(static_cast<std::streamoff>(8 + header + info.bytes()));
  const float infinity = std::numeric_limits<float>::infinity();
  file.write(reinterpret_cast<const char*>(&infinity), sizeof(infinity));
  file.close();
  const auto config = LoadModelConfig(Out("q8")).value();
  const auto reopened = SafetensorsCheckpoint::Open(Out("q8")).value();
  for (const OpTable* ops : registry_.Available("cpu")) {
    const auto weights = LoadWeights(config, *reopened, *backend_, *ops, std::nullopt);
    EXPECT_EQ(weights.status().code(), absl::StatusCode::kInvalidArgument) << weights.status();
  }
}

}  // namespace
}  // namespace annulus
