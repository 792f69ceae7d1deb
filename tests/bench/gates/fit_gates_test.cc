// Gates distilled from a model's own attention, written, read, and used by the policy `learned`.
#include "bench/gates/fit_gates.h"

#include <filesystem>
#include <fstream>
#include <random>

#include "bench/demo/document.h"
#include "engine/model/files/safetensors.h"
#include "engine/model/made/recall_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/step_driver.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::bench {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using ::testing::HasSubstr;
using testing::StepDriver;

constexpr int kPage = 16;

RankModel LoadGolden(CpuWorld& world, const std::string& name) {
  const std::string directory = testing::TestFile("golden/" + name).string();
  const ModelConfig config = LoadModelConfig(directory).value();
  const auto tensors = SafetensorsCheckpoint::Open(directory).value();
  const OpTable& ops = *world.registry.Available("cpu")[0];
  return MakeRankModel(config,
                       LoadWeights(config, *tensors, *world.backend, ops, DType::kF32).value(), ops,
                       kPage, DType::kF32);
}

// Texts of tokens that come back, as words do.
std::vector<int32_t> Document(int length, int vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> words(12);
  for (int32_t& word : words) word = static_cast<int32_t>(random() % vocabulary);
  std::vector<int32_t> ids;
  int32_t word = 0;
  for (int i = 0; i < length; ++i) {
    if (i % 24 == 0) word = words[random() % words.size()];
    ids.push_back(random() % 3 == 0 ? static_cast<int32_t>(random() % vocabulary) : word);
  }
  return ids;
}

struct Covered {
  double coverage = 0;
  double density = 0;
};

Covered Cover(CpuWorld& world, const RankModel& model, const std::string& policy, int ranks,
              const std::vector<int32_t>& prompt) {
  DriverOptions options;
  options.ranks = ranks;
  options.prefill_rows = 4 * kPage;
  options.all_logits = true;  // the last layer too
  options.attention = ParseAssignment(policy).value();
  const DriverResult result = StepDriver(world, model, options).Run({prompt}, 1)[0];
  double sum = 0;
  double count = 0;
  PairCount pairs;
  for (const LayerAttention& part : result.attention) {
    for (const double covered : part.covered) sum += covered;
    count += part.probes * static_cast<double>(part.covered.size());
    pairs += part.pairs;
  }
  return {sum / count, pairs.density()};
}

// Texts that the gates have not seen, and random blocks as many.
void ExpectBetterThanRandom(CpuWorld& world, RankModel& model,
                            const std::vector<std::vector<int32_t>>& documents,
                            const std::vector<int32_t>& unseen) {
  GateFitting fitting;
  fitting.width = 16;
  fitting.passes = 80;
  int layers = 0;
  auto gates = FitGates(model, *world.backend, 2, documents, fitting, [&](const GateLoss& loss) {
    EXPECT_LE(loss.after, loss.before) << loss.layer;
    ++layers;
  });
  ASSERT_TRUE(gates.ok()) << gates.status();
  const testing::TempDirectory directory;
  const std::string path = (directory.path() / "gates.safetensors").string();
  const GateShape shape = GateShapeOf(model);
  EXPECT_EQ(layers, std::count(shape.layers.begin(), shape.layers.end(), true));
  ASSERT_TRUE(WriteGates(*gates, shape, path).ok());
  EXPECT_EQ(WriteGates(*gates, shape, path).code(), absl::StatusCode::kAlreadyExists);
  const auto file = SafetensorsCheckpoint::OpenFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto read = ReadGates(**file, shape);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->layers.size(), gates->layers.size());
  for (size_t layer = 0; layer < read->layers.size(); ++layer) {
    EXPECT_EQ(read->layers[layer].query, gates->layers[layer].query);
    EXPECT_EQ(read->layers[layer].key, gates->layers[layer].key);
  }
  model.gates = std::make_shared<const AttentionGates>(*read);
  // Both hold the first block and their own; six more are chosen.
  const Covered learned = Cover(world, model, "learned:block=16,top=6", 1, unseen);
  double random = 0;
  double density = 0;
  for (const char* seed : {"1", "2", "3"}) {
    const Covered drawn =
        Cover(world, model, std::string("random:block=16,window=1,global=1,random=6,seed=") + seed,
              1, unseen);
    random += drawn.coverage / 3;
    density += drawn.density / 3;
  }
  EXPECT_GT(learned.coverage, random + 0.02) << "density " << learned.density << ", " << density;
  std::cout << "coverage " << learned.coverage << " of gates, " << random << " of random blocks, "
            << "density " << learned.density << " and " << density << std::endl;
  // Rings choose alike, and a contract is kept.
  EXPECT_NEAR(Cover(world, model, "learned:block=16,top=6", 3, unseen).coverage, learned.coverage,
              0.02);
  EXPECT_GE(Cover(world, model, "learned:block=16,coverage=0.9", 3, unseen).coverage, 0.9 - 1e-9);
}

TEST(FitGates, BeatRandomBlocksOnARandomModel) {
  CpuWorld world;
  for (const char* name : {"llama_gqa_bf16", "llama_windows"}) {
    SCOPED_TRACE(name);
    RankModel model = LoadGolden(world, name);
    std::vector<std::vector<int32_t>> documents;
    for (const uint32_t seed : {1, 2, 3}) {
      documents.push_back(Document(620, model.config.vocabulary, seed));
    }
    ExpectBetterThanRandom(world, model, documents, Document(700, model.config.vocabulary, 4));
  }
}

TEST(FitGates, RefuseWhatCannotBe) {
  CpuWorld world;
  const RankModel model = LoadGolden(world, "llama_gqa_bf16");
  const auto fit = [&](const std::vector<std::vector<int32_t>>& documents, int width) {
    GateFitting fitting;
    fitting.width = width;
    fitting.passes = 1;
    return FitGates(model, *world.backend, 1, documents, fitting, [](const GateLoss&) {}).status();
  };
  EXPECT_THAT(std::string(fit({}, 8).message()), HasSubstr("at least one document"));
  EXPECT_THAT(std::string(fit({{1, 2, 3}}, 8).message()), HasSubstr("at least two pages, 32"));
  EXPECT_THAT(std::string(fit({Document(64, 50, 1)}, 0).message()), HasSubstr("1 to 1024"));
}

// Writes gates for one shape and reads them for another.
TEST(FitGates, FilesOfTheWrongShapeAreRefusedWithTheAllowedOne) {
  const auto refusal = [](const AttentionGates& gates, const GateShape& written,
                          const GateShape& model) {
    const testing::TempDirectory directory;
    const std::string path = (directory.path() / "gates.safetensors").string();
    EXPECT_TRUE(WriteGates(gates, written, path).ok());
    const auto file = SafetensorsCheckpoint::OpenFile(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return std::string(ReadGates(**file, model).status().message());
  };
  const GateShape shape{{true, false}, 4, 2, 8};
  AttentionGates gates;
  gates.layers.resize(2);
  gates.layers[0] = {3, std::vector<float>(4 * 3 * 8, 0.5f), std::vector<float>(2 * 3 * 24, 0.25f)};
  EXPECT_EQ(refusal(gates, shape, shape), "");
  GateShape other = shape;
  other.heads = 6;
  EXPECT_THAT(refusal(gates, shape, other),
              HasSubstr("layers.0.query is [4, 3, 8]; allowed: [6, width, 8]"));
  other = shape;
  other.kv_heads = 4;
  EXPECT_THAT(refusal(gates, shape, other),
              HasSubstr("layers.0.key is [2, 3, 24]; allowed: [4, width, 24]"));
  other = shape;
  other.layers = {true, true};
  EXPECT_THAT(refusal(gates, shape, other), HasSubstr("layers.1.query is missing"));
  other.layers = {false, true};
  EXPECT_THAT(refusal(gates, shape, other), HasSubstr("layers.1.query is missing"));
  other.layers = {false, false};
  EXPECT_THAT(refusal(gates, shape, other), HasSubstr("layers.0.key is not allowed"));
  gates.layers[0].key[5] = std::nanf("");
  EXPECT_THAT(refusal(gates, shape, shape), HasSubstr("holds NaN or infinity"));
}

}  // namespace
}  // namespace annulus::bench
