#include "bench/quality/needles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/plain_options.h"
#include "tests/support/small_model.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"

namespace annulus::bench {
namespace {

using testing::CpuWorld;

TEST(NeedlesTest, AreDifferentAndTheSameForTheSameSeed) {
  const std::vector<Needle> needles = MakeNeedles(kMostNeedles, 3);
  std::set<std::string> cues;
  for (const Needle& needle : needles) {
    EXPECT_TRUE(cues.insert(needle.cue).second);
    EXPECT_EQ(needle.sentence(), needle.cue + needle.answer + ".");
  }
  EXPECT_EQ(MakeNeedles(kMostNeedles, 3).back().sentence(), needles.back().sentence());
  EXPECT_NE(MakeNeedles(1, 4)[0].sentence(), needles[0].sentence());
  // No answer fits two questions of a few.
  std::set<std::string> answers;
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(answers.insert(needles[i].answer).second);
}

TEST(NeedlesTest, StandOnLinesOfTheirOwnAtTheirDepths) {
  const std::vector<Needle> needles = MakeNeedles(4, 3);
  std::string text;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&text, "Line ", i, " ends here. It has two.\n");
  const std::string planted = PlantNeedles(text, needles);
  std::string without = planted;
  for (size_t i = 0; i < needles.size(); ++i) {
    const std::string line = absl::StrCat("\n", needles[i].sentence(), "\n");
    const size_t at = planted.find(line);
    ASSERT_NE(at, std::string::npos) << line;
    EXPECT_NEAR(static_cast<double>(at) / static_cast<double>(planted.size()), (i + 0.5) / 4, 0.05);
    without.erase(without.find(line.substr(1)), line.size() - 1);
  }
  // Nothing is lost; a sentence is cut from the next one by a line end instead.
  EXPECT_EQ(std::count(without.begin(), without.end(), '.'),
            std::count(text.begin(), text.end(), '.'));
  EXPECT_EQ(PlantNeedles("", needles),
            absl::StrCat(needles[0].sentence(), "\n", needles[1].sentence(), "\n",
                         needles[2].sentence(), "\n", needles[3].sentence(), "\n"));
  EXPECT_EQ(PlantNeedles(text, {}), text);
}

// The model that copies what followed the same words: it tells each, and none that is not there.
TEST(NeedlesTest, TheRecallModelTellsWhatIsPlanted) {
  CpuWorld world;
  EngineOptions options = testing::PlainOptions();
  options.kv_memory_bytes = size_t{64} << 20;
  const auto engine = CreateEngine(options, *world.backend, world.registry).value();
  const std::vector<Needle> needles = MakeNeedles(6, 3);
  std::string text;
  for (int i = 0; i < 300; ++i) absl::StrAppend(&text, "Entry ", 7919 * i, " holds ", i, ".\n");
  const auto told = CountAnswered(*engine, PlantNeedles(text, needles), needles);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(*told, 6);
  const auto absent = CountAnswered(*engine, text, needles);
  ASSERT_TRUE(absent.ok()) << absent.status();
  EXPECT_EQ(*absent, 0);
}

// In its own template, with the text as a framed document.
TEST(NeedlesTest, ALanguageModelIsAskedInItsTemplate) {
  const auto model = testing::SmallModel();
  if (!model.has_value()) GTEST_SKIP() << "the small model cannot be had here";
  CpuWorld world;
  EngineOptions options = testing::PlainOptions();
  options.model = model->string();
  options.kv_memory_bytes = size_t{128} << 20;
  const auto engine = CreateEngine(options, *world.backend, world.registry).value();
  const std::vector<Needle> needles = MakeNeedles(4, 3);
  std::string text;
  for (int i = 0; i < 10; ++i) absl::StrAppend(&text, "On day ", i + 1, " the weather was fair.\n");
  const auto told = CountAnswered(*engine, PlantNeedles(text, needles), needles);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_GE(*told, 2);
}

}  // namespace
}  // namespace annulus::bench
