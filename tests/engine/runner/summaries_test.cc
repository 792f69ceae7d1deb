// Summaries of pages on (emulated) GPUs: they stay in the device's memory, and what is chosen by
// them is what a CPU chooses.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/ops.h"
#include "tests/engine/runner/device_fixture.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using testing::AllLogits;
using testing::CpuWorld;
using testing::DeviceTest;
using testing::DriverOptions;
using testing::DriverResult;
using testing::StepDriver;

// Of all calls since the test began, by all ranks.
std::atomic<int> summarised{0};
std::atomic<int> scored{0};
std::atomic<int> outside{0};  // runs that are not in a device's memory

void LookAtRuns(const SummaryRuns& runs) {
  for (const float* const run : runs.runs) {
    if (!testing::IsDeviceMemory(run)) ++outside;
  }
}

class DeviceSummariesTest : public DeviceTest {
 protected:
  DeviceSummariesTest() { summarised = scored = outside = 0; }

  // The device's table, which notes where summaries lie that its ops are given.
  OpTable Watched() const {
    OpTable table = ops();
    table.key_summary = [](Stream& stream, const KeySummaryParams& params) {
      ++summarised;
      LookAtRuns(params.to);
      return cuda::KeySummary(stream, params);
    };
    table.summary_scores = [](Stream& stream, const SummaryScoresParams& params) {
      ++scored;
      LookAtRuns(params.from);
      return cuda::SummaryScores(stream, params);
    };
    return table;
  }

  static RankModel LoadPages(int page_tokens, Backend& backend, const OpTable& table) {
    const std::string directory = testing::TestFile("golden/llama_gqa_bf16").string();
    const ModelConfig config = LoadModelConfig(directory).value();
    const auto tensors = SafetensorsCheckpoint::Open(directory).value();
    return MakeRankModel(config, LoadWeights(config, *tensors, backend, table, DType::kF32).value(),
                         table, page_tokens, DType::kF32);
  }
};

void ExpectSameLists(const DriverResult& actual, const DriverResult& expected, int32_t block) {
  ASSERT_EQ(actual.lists.size(), expected.lists.size());
  for (const auto& [place, pattern] : expected.lists) {
    const auto& [layer, row] = place;
    const auto found = actual.lists.find(place);
    ASSERT_NE(found, actual.lists.end()) << "layer " << layer << ", row " << row;
    ASSERT_EQ(found->second->shape.head_groups, pattern->shape.head_groups);
    for (int group = 0; group < pattern->shape.head_groups; ++group) {
      const auto keys = pattern->keys(group, row / block);
      const auto chosen = found->second->keys(group, row / block);
      ASSERT_EQ(std::vector<int32_t>(chosen.begin(), chosen.end()),
                std::vector<int32_t>(keys.begin(), keys.end()))
          << "layer " << layer << ", row " << row << ", heads " << group;
    }
  }
}

struct SummariesCase {
  std::string policy;
  int page_tokens = 16;
  int32_t block = 16;
  int tokens = 2;  // of the answer
  int ranks = 1;
};

// Pages with one bound and with two, one of which the answer completes; means; a contract that
// takes more of them; both kinds in one sequence. On two ranks the prompt's beginning is reused.
// Some of these, as each takes ten seconds in the emulation.
TEST_F(DeviceSummariesTest, StayOnTheDeviceAndChooseAsOnTheCpu) {
  CpuWorld world;
  const OpTable watched = Watched();
  const OpTable& reference = *world.Find("cpu/reference");
  std::vector<SummariesCase> cases;
  for (const int ranks : {1, 2, 3}) {
    cases.push_back({"top_pages:pages=2,block=32", 32, 32, 14, ranks});
    cases.push_back({"adaptive:block=16,estimator=pooled,tau=0.4", 16, 16, 2, ranks});
    cases.push_back({"adaptive:block=16,estimator=pooled,coverage=0.9", 16, 16, 2, ranks});
    cases.push_back(
        {"hierarchical:near=2,block=16; layers=1: top_pages:pages=3,block=16", 16, 16, 4, ranks});
  }
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 275; ++i) prompt.push_back(i * i * 7 % 101);
  for (const SummariesCase& c : testing::Thinned(cases, kSanitized ? 1 : 3)) {
    SCOPED_TRACE(::testing::Message() << c.policy << ", " << c.ranks << " ranks");
    const RankModel model = LoadPages(c.page_tokens, *backend_, watched);
    const RankModel expected_model = LoadPages(c.page_tokens, *world.backend, reference);
    DriverOptions options = AllLogits(c.ranks, RingMode::kPassKv);
    options.all_logits = false;
    options.report_lists = true;
    options.reused_tokens = c.ranks == 2 ? 96 : 0;
    options.attention = ParseAssignment(c.policy).value();
    const int before = scored;
    StepDriver driver(*backend_, model, options);
    const DriverResult actual = driver.Run({prompt}, c.tokens)[0];
    const DriverResult expected =
        StepDriver(world, expected_model, options).Run({prompt}, c.tokens)[0];
    EXPECT_EQ(actual.tokens, expected.tokens);
    EXPECT_FALSE(expected.lists.empty());
    ASSERT_NO_FATAL_FAILURE(ExpectSameLists(actual, expected, c.block));
    EXPECT_GT(scored, before);
  }
  EXPECT_GT(summarised, 0);
  EXPECT_EQ(outside, 0) << "a kernel is given summaries outside of the device's memory";
}

}  // namespace
}  // namespace annulus
