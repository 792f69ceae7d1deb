// The same seeded request gives the same tokens and log probabilities, bit for bit, however many
// ranks there are, wherever its pages lie, and whether its beginning was cached.

#include <bit>
#include <cstdint>
#include <memory>
#include <random>
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
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CollectingSink;

struct Answer {
  std::vector<int32_t> ids;
  std::vector<uint32_t> bits;  // of the log probabilities of each token and its alternatives
  int64_t cached = 0;
  int degree = 0;
};

Answer Wait(CollectingSink& sink) {
  Answer answer;
  const auto done = sink.Wait();
  EXPECT_TRUE(done.has_value() && done->status.ok());
  if (!done.has_value()) return answer;
  answer.ids = sink.ids();
  answer.cached = done->usage.cached_tokens;
  answer.degree = done->attention.ring_degree;
  for (const TokenLogprob& each : sink.logprobs()) {
    answer.bits.push_back(std::bit_cast<uint32_t>(each.logprob));
    for (const auto& [id, logprob] : each.alternatives) {
      answer.bits.push_back(std::bit_cast<uint32_t>(logprob));
    }
  }
  return answer;
}

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
    RequestSpec spec;
    spec.prompt = prompt;
    spec.sampling.seed = 7;
    spec.sampling.temperature = 0.9f;
    spec.sampling.ignore_eos = true;
    spec.sampling.logprobs = 3;
    spec.sampling.max_tokens = 20;
    auto sink = std::make_shared<CollectingSink>();
    EXPECT_TRUE(engine.Submit(std::move(spec), sink).ok());
    return sink;
  }

  // Prompts of up to 460 tokens; every second begins like the one before it.
  static std::vector<std::vector<int32_t>> Prompts(int vocabulary) {
    std::mt19937 random(11);
    std::uniform_int_distribution<int32_t> token(3, vocabulary - 1);
    std::vector<std::vector<int32_t>> prompts;
    for (const int length : {20, 90, 130, 130, 190, 240, 330, 460}) {
      std::vector<int32_t> prompt;
      if (prompts.size() % 2 == 1) {
        prompt.assign(prompts.back().begin(), prompts.back().begin() + prompts.back().size() / 2);
      }
      while (static_cast<int>(prompt.size()) < length) prompt.push_back(token(random));
      prompts.push_back(std::move(prompt));
    }
    return prompts;
  }

  void Expect(const Answer& answer, const Answer& expected, const std::string& where) {
    EXPECT_EQ(answer.ids, expected.ids)
        << where << ", cached " << answer.cached << ", degree " << answer.degree;
    EXPECT_EQ(answer.bits, expected.bits)
        << where << ", cached " << answer.cached << ", degree " << answer.degree;
  }

  void Check(const std::string& model) {
    const auto one = Make(model, 1, RingMode::kPassQ);
    const std::vector<std::vector<int32_t>> prompts = Prompts(one->model().vocabulary);
    std::vector<Answer> expected;
    for (const auto& prompt : prompts) expected.push_back(Wait(*Ask(*one, prompt)));
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
                 const std::vector<Answer>& expected, const std::string& ring, int ranks) {
    int64_t cached = 0;
    int degrees = 0;
    const auto where = [&](const char* how, size_t i) {
      return ring + ", " + how + ", prompt " + std::to_string(i);
    };
    for (const char* how : {"first", "again"}) {
      for (size_t i = 0; i < prompts.size(); ++i) {
        const Answer answer = Wait(*Ask(engine, prompts[i]));
        Expect(answer, expected[i], where(how, i));
        cached += answer.cached;
        degrees |= 1 << answer.degree;
      }
    }
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (const auto& prompt : prompts) sinks.push_back(Ask(engine, prompt));
    for (size_t i = 0; i < prompts.size(); ++i) {
      Expect(Wait(*sinks[i]), expected[i], where("together", i));
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
