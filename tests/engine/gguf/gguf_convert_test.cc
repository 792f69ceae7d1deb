// A GGUF file converted ahead: the directory serves what the file serves with the same dtype.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/api.h"
#include "engine/loading/loaded_model.h"
#include "engine/model/files/safetensors.h"
#include "tests/engine/gguf/gguf_checkpoint.h"
#include "tests/support/golden.h"
#include "tests/support/plain_options.h"
#include "tests/support/step_driver.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using testing::GgufCase;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::StepDriver;

constexpr int kTokens = 8;

class GgufConvertTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) { return (directory_.path() / name).string(); }

  DriverResult Run(const std::string& model, std::optional<DType> dtype,
                   const std::vector<int32_t>& prompt) {
    EngineOptions options = testing::PlainOptions();
    options.model = model;
    options.page_tokens = 16;
    options.weights_dtype = dtype;
    const auto loaded = LoadModel(options, *world_.backend, world_.registry);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (!loaded.ok()) return {};
    DriverOptions driver;
    driver.all_logits = true;
    return StepDriver(world_, loaded->ranks, driver).Run({prompt}, kTokens)[0];
  }

  // The directory and the file give the same bits.
  void ExpectSame(const std::string& file, DType dtype, const std::vector<int32_t>& prompt) {
    const std::string out = Path(absl::StrCat("as-", DTypeName(dtype)));
    const auto report = ConvertModelDirectory(file, dtype, out);
    ASSERT_TRUE(report.ok()) << report.status();
    const DriverResult from_file = Run(file, dtype, prompt);
    const DriverResult converted = Run(out, std::nullopt, prompt);
    ASSERT_EQ(from_file.tokens.size(), static_cast<size_t>(kTokens));
    EXPECT_EQ(converted.tokens, from_file.tokens);
    EXPECT_TRUE(converted.logits == from_file.logits);
  }

  testing::TempDirectory directory_;
  CpuWorld world_;
};

class GgufConvertFamiliesTest : public GgufConvertTest,
                                public ::testing::WithParamInterface<GgufCase> {};

TEST_P(GgufConvertFamiliesTest, TheDirectoryServesTheSame) {
  const ModelConfig config = LoadModelConfig(GetParam().directory()).value();
  const auto source = SafetensorsCheckpoint::Open(GetParam().directory()).value();
  GgufWriter writer;
  WriteGgufMetadata(GetParam(), config, writer);
  WriteGgufTokens(config.vocabulary, writer);
  WriteGgufTensors(GetParam(), config, *source, writer);
  directory_.Write("model.gguf", writer.File());
  ExpectSame(Path("model.gguf"), DType::kI8, testing::LoadGolden(GetParam().directory()).prompt);
}

// All but qwen3_moe, whose middle layer has no experts: no metadata of a GGUF file say that.
std::vector<GgufCase> ServedCases() {
  std::vector<GgufCase> cases;
  for (const GgufCase& one : testing::kGgufCases) {
    if (std::string(one.golden) != "qwen3_moe") cases.push_back(one);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, GgufConvertFamiliesTest,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized(ServedCases(), 4)),
                         [](const auto& info) { return testing::TestName(info.param); });

// Kept codes, codes that are widened first, plain numbers; to plain numbers and to codes, the
// file's own among them.
TEST_F(GgufConvertTest, TheDirectoryServesTheSameForEveryKindOfType) {
  const std::vector<int32_t> prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
  for (const char* type : {"BF16", "Q4_1", "Q8_0", "Q5_K"}) {
    for (const DType dtype :
         {DType::kF32, DType::kBF16, DType::kI8, DType::kI4G32, DType::kQ4_1, DType::kQ8_0}) {
      SCOPED_TRACE(absl::StrCat(type, " to ", DTypeName(dtype)));
      ExpectSame(testing::TestFile(absl::StrCat("golden/gguf/", type, ".gguf")), dtype, prompt);
      std::filesystem::remove_all(Path(absl::StrCat("as-", DTypeName(dtype))));
    }
  }
}

std::vector<std::string> FilesIn(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST_F(GgufConvertTest, WritesAHuggingFaceDirectory) {
  const std::string file = testing::TestFile("golden/gguf/Q4_1.gguf");
  ASSERT_TRUE(ConvertModelDirectory(file, DType::kBF16, Path("out")).ok());
  EXPECT_THAT(
      FilesIn(Path("out")),
      ::testing::UnorderedElementsAre("annulus_conversion.json", "config.json", "model.safetensors",
                                      "tokenizer.json", "tokenizer_config.json"));
  EXPECT_EQ(ConvertModelDirectory(file, DType::kBF16, Path("out")).status().code(),
            absl::StatusCode::kAlreadyExists);
}

// Vocabularies with scores become a tokenizer.model; the chat template is in
// tokenizer_config.json.
TEST_F(GgufConvertTest, WritesTheTokenizerThatTheMetadataHave) {
  const GgufCase& of = testing::kGgufCases[0];
  const ModelConfig config = LoadModelConfig(of.directory()).value();
  const auto source = SafetensorsCheckpoint::Open(of.directory()).value();
  const auto write = [&](const char* kind) {
    GgufWriter writer;
    WriteGgufMetadata(of, config, writer);
    WriteGgufTensors(of, config, *source, writer);
    std::vector<std::string> tokens;
    for (int32_t id = 0; id < config.vocabulary; ++id) tokens.push_back(absl::StrCat("t", id));
    std::vector<int32_t> types(tokens.size(), 1);
    types[0] = 2;  // unknown
    writer.Set("tokenizer.ggml.model", kind);
    writer.Set("tokenizer.ggml.tokens", tokens);
    writer.Set("tokenizer.ggml.token_type", types);
    writer.Set("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1.0f));
    writer.Set("tokenizer.chat_template", "{{ messages[0].content }}");
    directory_.Write("model.gguf", writer.File());
    return Path("model.gguf");
  };
  ExpectSame(write("llama"), DType::kBF16, {1, 2, 3, 4});
  EXPECT_THAT(FilesIn(Path("as-bf16")), ::testing::Contains("tokenizer.model"));
  EngineOptions options = testing::PlainOptions();
  options.model = Path("as-bf16");
  const auto loaded = LoadModel(options, *world_.backend, world_.registry);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(loaded->info.has_chat_template);

  const auto refused = ConvertModelDirectory(write("bert"), DType::kBF16, Path("refused"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("tokenizer.ggml.model is \"bert\"; supported: gpt2"));
  EXPECT_FALSE(std::filesystem::exists(Path("refused")));
}

}  // namespace
}  // namespace annulus
