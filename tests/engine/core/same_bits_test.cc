// The same seeded request gives the same tokens and log probabilities, bit for bit, however many
// ranks there are, wherever its pages lie, and whether its beginning was cached.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_seams.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/engine/core/windowed_model.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/plain_options.h"
#include "tests/support/sampled_answer.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using testing::ExpectSame;
using testing::SampledAnswer;
using testing::WaitSampled;

class SameBitsTest : public ::testing::Test {
 protected:
  SameBitsTest() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  std::unique_ptr<Engine> Make(const std::string& model, int ranks, RingMode mode) {
    EngineOptions options = testing::PlainOptions();
    options.model = model;
    options.ranks = ranks;
    options.threads = ranks;
    options.kv_memory_bytes = 64 << 20;
    options.page_tokens = 16;
    options.chunk_tokens = 128;
    options.tokens_per_rank = 100;
    options.ring_mode = mode;
    auto engine = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  static std::shared_ptr<CollectingSink> Ask(Engine& engine, const std::vector<int32_t>& prompt) {
    return testing::AskSampled(engine, prompt, 20);
  }

  void Check(const std::string& model) {
    const auto one = Make(model, 1, RingMode::kPassQ);
    const std::vector<std::vector<int32_t>> prompts = testing::PromptsWithSharedStarts(
        one->model().vocabulary, {20, 90, 130, 130, 190, 240, 330, 460});
    std::vector<SampledAnswer> expected;
    for (const auto& prompt : prompts) expected.push_back(WaitSampled(*Ask(*one, prompt)));
    std::vector<std::pair<int, RingMode>> rings;
    for (const int ranks : {1, 2, 3, 4}) {
      for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
        rings.emplace_back(ranks, mode);
      }
    }
    for (const auto& [ranks, mode] : testing::ThinnedIfSanitized(rings, 3)) {
      CheckRing(*Make(model, ranks, mode), prompts, expected,
                std::to_string(ranks) + " ranks, pass-" + (mode == RingMode::kPassQ ? "Q" : "KV"),
                ranks);
    }
  }

  // Fresh, then from the cache, then all together beside each other.
  void CheckRing(Engine& engine, const std::vector<std::vector<int32_t>>& prompts,
                 const std::vector<SampledAnswer>& expected, const std::string& ring, int ranks) {
    int64_t cached = 0;
    int degrees = 0;
    const auto where = [&](const char* how, size_t i) {
      return ring + ", " + how + ", prompt " + std::to_string(i);
    };
    for (const char* how : {"first", "again"}) {
      for (size_t i = 0; i < prompts.size(); ++i) {
        const SampledAnswer answer = WaitSampled(*Ask(engine, prompts[i]));
        ExpectSame(answer, expected[i], where(how, i));
        cached += answer.cached;
        degrees |= 1 << answer.degree;
      }
    }
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (const auto& prompt : prompts) sinks.push_back(Ask(engine, prompt));
    for (size_t i = 0; i < prompts.size(); ++i) {
      ExpectSame(WaitSampled(*sinks[i]), expected[i], where("together", i));
    }
    EXPECT_GT(cached, 0) << ring;
    EXPECT_NE(degrees & 1 << std::min(ranks, 4), 0) << ring << ": no ring of all ranks";
  }

  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
};

TEST_F(SameBitsTest, OfATrainedModel) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory.has_value()) GTEST_SKIP() << "the test data is absent";
  Check(directory->string());
}

TEST_F(SameBitsTest, OfAModelWithWindowsAndSinks) {
  const testing::TempDirectory folder;
  Check(testing::WindowedModel(folder));
}

TEST_F(SameBitsTest, OfAModelWhoseLayersDifferInShapeAndAttendKeysOfOthers) {
  const testing::TempDirectory folder;
  Check(testing::WindowedModel(folder, "gemma4"));
}

TEST_F(SameBitsTest, OfAModelWithSeveralResiduals) {
  const testing::TempDirectory folder;
  Check(testing::WindowedModel(folder, "gemma3n"));
}

TEST_F(SameBitsTest, OfAModelWithExpertsBesideTheBlock) {
  const testing::TempDirectory folder;
  Check(testing::WindowedModel(folder, "gemma4_moe"));
}

}  // namespace
}  // namespace annulus
