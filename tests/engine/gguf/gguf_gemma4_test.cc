// Gemma 3n and 4 as GGUF files that follow llama.cpp's converter (golden/gguf/make_*.py): the same
// bits as the directories that they were made of, whose logits are those of Transformers.
#include "engine/gguf/gguf_gemma4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/api.h"
#include "engine/gguf/gguf_families.h"
#include "engine/gguf/gguf_tensors.h"
#include "engine/gguf/gguf_tokenizer.h"
#include "engine/loading/loaded_model.h"
#include "tests/engine/gguf/gguf_writer.h"
#include "tests/support/golden.h"
#include "tests/support/plain_options.h"
#include "tests/support/step_driver.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::StepDriver;

class GgufFilesTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string Directory() {
    return testing::TestFile(absl::StrCat("golden/", GetParam())).string();
  }
  static std::string File() {
    return testing::TestFile(absl::StrCat("golden/gguf/", GetParam(), ".gguf")).string();
  }

  LoadedModel Load(const std::string& model, std::optional<DType> dtype) {
    EngineOptions options = testing::PlainOptions();
    options.model = model;
    options.page_tokens = 16;
    options.weights_dtype = dtype;
    if (dtype == DType::kF32) options.kv_dtype = DType::kF32;
    return LoadModel(options, *world_.backend, world_.registry).value();
  }

  DriverResult Run(const RankModel& model, int ranks, const std::vector<int32_t>& prompt,
                   int tokens) {
    DriverOptions options;
    options.ranks = ranks;
    options.all_logits = true;
    return StepDriver(world_, model, options).Run({prompt}, tokens)[0];
  }

  CpuWorld world_;
};

TEST_P(GgufFilesTest, HasTheTokensAndTheBitsOfTheDirectory) {
  const testing::Golden golden = testing::LoadGolden(Directory());
  const LoadedModel file = Load(File(), DType::kF32);
  const LoadedModel directory = Load(Directory(), DType::kF32);
  for (const int ranks : {1, 3}) {
    const DriverResult got = Run(file.ranks, ranks, golden.prompt, 64);
    EXPECT_EQ(got.tokens, golden.greedy) << ranks;
    EXPECT_TRUE(got.logits == Run(directory.ranks, ranks, golden.prompt, 64).logits) << ranks;
    double largest = 0, scale = 0;
    for (const auto& [position, row] : got.logits) {
      if (position >= static_cast<int64_t>(golden.prompt.size())) continue;
      for (size_t v = 0; v < row.size(); ++v) {
        const double wanted = golden.logits[static_cast<size_t>(position) * row.size() + v];
        largest = std::max(largest, std::abs(row[v] - wanted));
        scale = std::max(scale, std::abs(wanted));
      }
    }
    EXPECT_LE(largest, 1e-4 * scale) << ranks;
  }
}

// Without a dtype: bf16, as both store matrices.
TEST_P(GgufFilesTest, HasTheBitsOfTheDirectoryAsStored) {
  const testing::Golden golden = testing::LoadGolden(Directory());
  const LoadedModel file = Load(File(), std::nullopt);
  EXPECT_EQ(file.info.weights_dtype, DType::kBF16);
  const DriverResult got = Run(file.ranks, 2, golden.prompt, 8);
  EXPECT_TRUE(got.logits == Run(Load(Directory(), std::nullopt).ranks, 2, golden.prompt, 8).logits);
}

TEST_P(GgufFilesTest, AConvertedFileServesTheSame) {
  const testing::TempDirectory directory;
  const std::vector<int32_t> prompt = testing::LoadGolden(Directory()).prompt;
  for (const DType dtype : {DType::kI8, DType::kBF16}) {
    const std::string out = (directory.path() / std::string(DTypeName(dtype))).string();
    const auto report = ConvertModelDirectory(File(), dtype, out);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(Run(Load(out, std::nullopt).ranks, 1, prompt, 8).logits ==
                Run(Load(File(), dtype).ranks, 1, prompt, 8).logits);
  }
}

INSTANTIATE_TEST_SUITE_P(, GgufFilesTest, ::testing::Values("gemma3n", "gemma4", "gemma4_moe"),
                         [](const auto& info) { return std::string(info.param); });

class GgufGemma4Test : public GgufFilesTest {};

// The end of a turn is the family's, whatever the file names; marks that the converter types as
// user-defined are control tokens, as the publisher's tokenizer.json has them.
TEST_P(GgufGemma4Test, KnowsItsControlTokens) {
  const auto file = GgufFile::Open(File()).value();
  const auto files = MakeGgufTokenizer(*file);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto tokenizer = LoadGgufTokenizer(*files, "f.gguf").value();
  const auto id = [&](absl::string_view text) {
    return tokenizer->Encode(text, /*add_special=*/false).value();
  };
  EXPECT_THAT(tokenizer->Encode("", /*add_special=*/true).value(), ::testing::ElementsAre(2));
  EXPECT_THAT(id("<turn|>"), ::testing::ElementsAre(6));
  EXPECT_THAT(id("<|channel>"), ::testing::ElementsAre(7));
  for (const int32_t control : {2, 6, 7, 8, 9}) EXPECT_TRUE(tokenizer->IsControl(control));
  EXPECT_THAT(Load(File(), DType::kF32).info.end_of_text_ids, ::testing::ElementsAre(1, 6));
}

INSTANTIATE_TEST_SUITE_P(, GgufGemma4Test, ::testing::Values("gemma4", "gemma4_moe"),
                         [](const auto& info) { return std::string(info.param); });

// Experts of a quantized file keep their codes, each by itself; gate and up share a tensor, or not.
TEST(GgufGemma4TensorsTest, ExpertsKeepTheirCodes) {
  for (const bool fused : {true, false}) {
    GgufWriter writer;
    writer.Set("general.architecture", "gemma4");
    constexpr uint32_t kQ8 = 8;
    constexpr size_t kRowBytes = 34;
    std::string rows;
    for (size_t row = 0; row < 8; ++row) rows += std::string(kRowBytes, static_cast<char>(row));
    if (fused) {
      writer.AddTensor("blk.0.ffn_gate_up_exps.weight", {2, 4, 32}, kQ8, rows);
    } else {
      writer.AddTensor("blk.0.ffn_gate_exps.weight", {2, 2, 32}, kQ8,
                       rows.substr(0, 4 * kRowBytes));
      writer.AddTensor("blk.0.ffn_up_exps.weight", {2, 2, 32}, kQ8, rows.substr(4 * kRowBytes));
    }
    const testing::TempDirectory directory;
    directory.Write("m", writer.File());
    const std::shared_ptr<const GgufFile> file =
        GgufFile::Open((directory.path() / "m").string()).value();
    const auto made =
        GgufTensors::Create(file, *FindGgufFamily(*file), GgufTensors::Codes::kKeep).value();
    const auto first_code = [&](absl::string_view part, int expert, size_t row) {
      const std::string name =
          absl::StrCat("model.layers.0.experts.", expert, ".", part, "_proj.weight");
      EXPECT_EQ(made->Describe(name)->shape, (std::vector<int64_t>{2, 32}));
      EXPECT_EQ(made->Describe(name)->dtype, DType::kI8);
      std::vector<std::byte> codes(64);
      EXPECT_TRUE(made->Read(name, codes).ok());
      return static_cast<int>(codes[row * 32]);
    };
    EXPECT_EQ(first_code("gate", 0, 1), 1);
    EXPECT_EQ(first_code("gate", 1, 0), fused ? 4 : 2);
    EXPECT_EQ(first_code("up", 0, 0), fused ? 2 : 4);
    EXPECT_EQ(first_code("up", 1, 1), 7);
    EXPECT_TRUE(made->widened().empty());
  }
}

TEST(GgufGemma4TensorsTest, HalvesOfGateAndUpAreEqual) {
  GgufWriter writer;
  writer.Set("general.architecture", "gemma4");
  writer.AddFloats("blk.0.ffn_gate_up_exps.weight", {1, 3, 2}, {1, 2, 3, 4, 5, 6});
  const testing::TempDirectory directory;
  directory.Write("m", writer.File());
  const std::shared_ptr<const GgufFile> file =
      GgufFile::Open((directory.path() / "m").string()).value();
  EXPECT_THAT(
      std::string(GgufTensors::Create(file, *FindGgufFamily(*file), GgufTensors::Codes::kKeep)
                      .status()
                      .message()),
      HasSubstr("allowed: three dimensions, the second even"));
}

// The status of the metadata of three layers, where `change` writes the keys `changed` otherwise.
absl::Status StatusOf(const std::set<std::string>& changed = {},
                      const std::function<void(GgufWriter&)>& change = nullptr,
                      float factor = 1e30f, bool has_factors = true) {
  GgufWriter writer;
  if (change != nullptr) change(writer);
  writer.Set("general.architecture", "gemma4");
  if (has_factors) writer.AddFloats("rope_freqs.weight", {4}, {1, 1, factor, 1e30f});
  const auto set = [&](const char* key, const auto& value) {
    if (!changed.contains(key)) writer.Set(absl::StrCat("gemma4.", key), value);
  };
  set("block_count", 3u);
  set("feed_forward_length", 16u);
  set("attention.head_count", 2u);
  set("attention.head_count_kv", 2u);
  set("attention.key_length", 8u);
  set("attention.key_length_swa", 4u);
  set("attention.sliding_window", 8u);
  set("attention.sliding_window_pattern", std::vector<bool>{true, false, true});
  const testing::TempDirectory directory;
  directory.Write("m", writer.File());
  const auto file = GgufFile::Open((directory.path() / "m").string()).value();
  return GgufConfigJson(*file, *FindGgufFamily(*file)).status();
}

TEST(GgufGemma4ConfigTest, NamesWhatIsAllowed) {
  EXPECT_TRUE(StatusOf().ok()) << StatusOf();
  const auto message = [](const char* key, const auto& value) {
    const absl::Status status = StatusOf(
        {key}, [&](GgufWriter& writer) { writer.Set(absl::StrCat("gemma4.", key), value); });
    EXPECT_FALSE(status.ok()) << key;
    return std::string(status.message());
  };
  EXPECT_THAT(message("block_count", 0u), HasSubstr("block_count is 0; allowed: from 1 to"));
  EXPECT_THAT(message("attention.sliding_window_pattern", std::vector<bool>{true}),
              HasSubstr("needed: a flag for each of the 3 layers"));
  EXPECT_THAT(message("attention.shared_kv_layers", 3u), HasSubstr("is 3; allowed: from 0 to 2"));
  EXPECT_THAT(message("attention.value_length", 16u),
              HasSubstr("value_length is 16 and key_length 8; supported: the same for both"));
  EXPECT_THAT(message("rope.dimension_count_swa", 2u), HasSubstr("supported: the same for both"));
  EXPECT_THAT(message("attention.head_count_kv", std::vector<int32_t>{1, 2}),
              HasSubstr("allowed: a whole number, or one for each of the 3 layers"));
  EXPECT_THAT(message("attention.head_count_kv", std::vector<int32_t>{1, 2, -1}),
              HasSubstr("allowed: a whole number, or one for each of the 3 layers"));
  EXPECT_THAT(message("feed_forward_length", std::vector<int32_t>{16, 24, 16}),
              HasSubstr("feed_forward_length of layer 1 is 24; supported: 16 as in the first"));
  EXPECT_THAT(message("rope.scaling.type", "linear"), HasSubstr("\"linear\"; supported: none"));
  EXPECT_THAT(message("rope.freq_base_swa", "a"), HasSubstr("allowed: a finite number"));
  EXPECT_THAT(message("attention.key_length", 514u), HasSubstr("is 514; allowed: at most 512"));
  EXPECT_THAT(message("attention.key_length", 6u), HasSubstr("needed: 3 factors, one for each"));
  EXPECT_THAT(std::string(StatusOf({}, nullptr, 8.0f).message()),
              HasSubstr("has the factor 8; supported: 1, and behind these at least 1e+30"));
  EXPECT_THAT(std::string(StatusOf({}, nullptr, 1e30f, false).message()),
              HasSubstr("tensor rope_freqs.weight is missing or of another shape"));
}

// Blocks of the layers that share keys are twice as wide, or none is.
TEST(GgufGemma4ConfigTest, BlocksMayBeTwiceAsWide) {
  const auto status = [](const std::vector<int32_t>& widths) {
    return StatusOf({"feed_forward_length"}, [&](GgufWriter& writer) {
      writer.Set("gemma4.attention.shared_kv_layers", 1u);
      writer.Set("gemma4.feed_forward_length", widths);
    });
  };
  EXPECT_TRUE(status({16, 16, 32}).ok());
  EXPECT_TRUE(status({16, 16, 16}).ok());
  EXPECT_FALSE(status({16, 32, 32}).ok());
  EXPECT_FALSE(status({16, 16, 24}).ok());
}

}  // namespace
}  // namespace annulus
