// Heads that point at planted facts, and the profile that names them to the daemon.
#include "bench/heads/find_heads.h"

#include <memory>
#include <string>
#include <vector>

#include "engine/model/made/recall_model.h"
#include "engine/request/evidence_heads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/step_driver.h"
#include "tests/support/temp_directory.h"

namespace annulus::bench {
namespace {

using testing::CpuWorld;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RankModel LoadRecall(CpuWorld& world) {
  const ModelConfig config = RecallConfig(2);
  const OpTable& ops = *world.registry.Available("cpu")[0];
  ModelWeights weights =
      LoadWeights(config, *MakeRecallTensors(2), *world.backend, ops, std::nullopt).value();
  return MakeRankModel(config, std::move(weights), ops, 64, DType::kF32);
}

// All eight heads of its layer 1 look facts up, and nothing else does.
TEST(FindHeads, FindsThoseOfTheRecallModel) {
  CpuWorld world;
  const RankModel model = LoadRecall(world);
  const FindHeadsOptions options{.bytes = 4096, .facts = 5};
  const auto scores = FindHeads(model, *MakeByteTokenizer(), *world.backend, options);
  ASSERT_TRUE(scores.ok()) << scores.status();
  ASSERT_THAT(*scores, SizeIs(8));
  for (const HeadScore& each : *scores) {
    EXPECT_EQ(each.head.layer, 1);
    EXPECT_GT(each.score, 0.99);
  }
  const std::vector<HeadScore> chosen = ChooseHeads(*scores, model.layers());
  EXPECT_THAT(chosen, SizeIs(8));
  // The engine reads what is written.
  testing::TempDirectory directory;
  directory.Write("profile.json", ProfileJson(chosen, options));
  const std::string path = (directory.path() / "profile.json").string();
  const auto heads = FindEvidenceHeads(path, model);
  ASSERT_TRUE(heads.ok()) << heads.status();
  EXPECT_EQ(*heads, DefaultEvidenceHeads(model));
}

std::vector<LayerHead> Chosen(const std::vector<HeadScore>& scores, int layers) {
  std::vector<LayerHead> heads;
  for (const HeadScore& each : ChooseHeads(scores, layers)) heads.push_back(each.head);
  return heads;
}

TEST(ChooseHeads, TakesTheBestOfFewLayers) {
  const std::vector<HeadScore> scores = {{{5, 1}, 0.9}, {{7, 0}, 0.8}, {{5, 3}, 0.5},
                                         {{6, 0}, 0.4}, {{7, 2}, 0.2}, {{5, 0}, 0.05}};
  EXPECT_THAT(Chosen(scores, 24),
              ElementsAre(LayerHead{5, 1}, LayerHead{7, 0}, LayerHead{5, 3}, LayerHead{7, 2}));
  EXPECT_THAT(Chosen(scores, 4), ElementsAre(LayerHead{5, 1}, LayerHead{5, 3}));
  EXPECT_THAT(Chosen({{{0, 0}, 0.09}}, 4), IsEmpty());
  std::vector<HeadScore> many;
  for (int32_t head = 0; head < 40; ++head) many.push_back({{0, head}, 0.5});
  EXPECT_THAT(Chosen(many, 4), SizeIs(kMostHeads));
}

}  // namespace
}  // namespace annulus::bench
