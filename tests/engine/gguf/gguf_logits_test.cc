// A tiny model in every element type against the logits that Hugging Face Transformers computes
// with its dequantised weights (tests/golden/gguf/make_gguf_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/loading/loaded_model.h"
#include "tests/support/plain_options.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::StepDriver;

std::string File(const std::string& name) { return testing::TestFile("golden/gguf/" + name); }

// [prompt.size(), vocabulary]
std::vector<float> ReadLogits(const std::string& path) {
  std::vector<float> logits(std::filesystem::file_size(path) / sizeof(float));
  std::ifstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file.read(reinterpret_cast<char*>(logits.data()),
            static_cast<std::streamsize>(logits.size() * sizeof(float)));
  return logits;
}

// Tables that round the inputs of products to bf16, or to integers (kernels/ops/linear.h).
bool RoundsInputs(const OpTable& ops, DType weights) {
  return (absl::StrContains(ops.name, "bf16") || absl::StrContains(ops.name, "amx")) &&
         weights != DType::kF32 && weights != DType::kF16;
}

class GgufLogitsTest : public ::testing::TestWithParam<const char*> {
 protected:
  GgufLogitsTest() {
    std::ifstream file(File("expected.json"));
    prompt_ = nlohmann::json::parse(file).at("prompt_ids").get<std::vector<int32_t>>();
  }

  static std::string Name() { return GetParam(); }

  // The largest difference of any logit of the prompt's rows, over the largest logit.
  double Error(const RankModel& model, const std::vector<float>& expected) {
    DriverOptions options;
    options.ranks = 2;
    options.all_logits = true;
    const auto result = StepDriver(world_, model, options).Run({prompt_}, 1)[0];
    EXPECT_EQ(result.logits.size(), prompt_.size() - 1);
    const auto vocabulary = static_cast<size_t>(model.config.vocabulary);
    EXPECT_EQ(expected.size(), prompt_.size() * vocabulary);
    double largest = 0, scale = 0;
    for (const auto& [position, row] : result.logits) {
      for (size_t v = 0; v < vocabulary; ++v) {
        const double wanted = expected[static_cast<size_t>(position) * vocabulary + v];
        largest = std::max(largest, std::abs(row[v] - wanted));
        scale = std::max(scale, std::abs(wanted));
      }
    }
    return largest / scale;
  }

  LoadedModel Load(const OpTable& ops, std::optional<DType> dtype) {
    EngineOptions options = testing::PlainOptions();
    options.model = File(Name() + ".gguf");
    options.page_tokens = 16;
    options.kernels = ops.name;
    options.weights_dtype = dtype;
    options.kv_dtype = DType::kF32;
    return LoadModel(options, *world_.backend, world_.registry).value();
  }

  CpuWorld world_;
  std::vector<int32_t> prompt_;
};

TEST_P(GgufLogitsTest, AreThoseOfTransformersOnTheValuesOfTheFile) {
  const std::vector<float> expected = ReadLogits(File(Name() + ".exact.f32"));
  for (const OpTable* ops : world_.registry.Available("cpu")) {
    EXPECT_LE(Error(Load(*ops, DType::kF32).ranks, expected), 1e-4) << ops->name;
  }
}

// With no dtype asked for: plain types, Q8_0, Q4_0 and Q4_1 are as stored, others are bf16.
TEST_P(GgufLogitsTest, AreThoseOfTransformersOnTheValuesThatAreServed) {
  const std::string rounded = File(Name() + ".served.f32");
  const std::vector<float> expected =
      ReadLogits(std::filesystem::exists(rounded) ? rounded : File(Name() + ".exact.f32"));
  for (const OpTable* ops : world_.registry.Available("cpu")) {
    const LoadedModel model = Load(*ops, std::nullopt);
    const double bound = RoundsInputs(*ops, model.info.weights_dtype) ? 2e-2 : 1e-4;
    EXPECT_LE(Error(model.ranks, expected), bound) << ops->name;
  }
}

const std::vector<const char*> kTypes = {"F32",  "F16",  "BF16", "Q8_0",   "Q4_0",
                                         "Q4_1", "Q5_0", "Q5_1", "Q2_K",   "Q3_K",
                                         "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"};

INSTANTIATE_TEST_SUITE_P(, GgufLogitsTest,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized(kTypes, 4)),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace annulus
