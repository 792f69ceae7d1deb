// Requests that give up their pages and go on later, for others or because a step failed, have the
// tokens and log probabilities, bit for bit, that they have if nobody disturbs them.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_seams.h"
#include "engine/scheduler/answer_length.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/engine/core/windowed_model.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/failing_ranks.h"
#include "tests/support/plain_options.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CollectingSink;

class PreemptedBitsTest : public ::testing::Test {
 protected:
  static constexpr int kPreemptedPage = 16;

  PreemptedBitsTest() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  EngineOptions Options(const std::string& model, int ranks) const {
    EngineOptions options = testing::PlainOptions();
    options.model = model;
    options.ranks = ranks;
    options.threads = ranks;
    options.kv_memory_bytes = 64 << 20;
    options.page_tokens = kPreemptedPage;
    options.chunk_tokens = 64;
    options.tokens_per_rank = 40;
    options.attention = attention_;
    return options;
  }
  std::unique_ptr<Engine> Make(const EngineOptions& options) {
    auto engine = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  static std::shared_ptr<CollectingSink> Submit(Engine& engine, RequestSpec spec) {
    auto sink = std::make_shared<CollectingSink>();
    const auto id = engine.Submit(std::move(spec), sink);
    EXPECT_TRUE(id.ok()) << id.status();
    return sink;
  }

  // Greedy and drawn, with penalties, stops that never come, a least length, and guesses. Check
  // adds a constraint to the last.
  static std::vector<RequestSpec> Specs(int vocabulary, bool has_text) {
    std::vector<RequestSpec> specs;
    for (int i = 0; i < 5; ++i) {
      RequestSpec& spec = specs.emplace_back();
      for (int token = 0; token < 30 + 7 * i; ++token) {
        spec.prompt.push_back(3 + (token * (17 + i) + 31 * i) % (vocabulary - 3));
      }
      spec.sampling.seed = 11 + i;
      spec.sampling.max_tokens = 110;
      spec.sampling.ignore_eos = true;
      spec.sampling.temperature = i == 0 ? 0.0f : 0.9f;
      if (has_text) spec.sampling.stop = {"\x01never\x01"};
      if (i % 2 == 1) {
        spec.sampling.repetition_penalty = 1.3f;
        spec.sampling.frequency_penalty = 0.4f;
        spec.sampling.presence_penalty = 0.2f;
      }
      if (i == 2) {
        spec.sampling.min_tokens = 60;
        spec.sampling.ignore_eos = false;
      }
      if (i >= 3) spec.speculation = Speculation::kNgram;
      spec.digest = true;
    }
    return specs;
  }

  // `change`: of the options of the engine with little memory. Returns how often it preempted.
  template <typename Change>
  int64_t Check(const std::string& model, int ranks, const Change& change) {
    const auto roomy = Make(Options(model, ranks));
    EngineOptions options = Options(model, ranks);
    options.admission = AdmissionMode::kExpected;
    const bool has_text = !model.starts_with("random:");
    std::vector<RequestSpec> specs = Specs(roomy->model().vocabulary, has_text);
    if (has_text) {
      specs[4].sampling.ignore_eos = false;
      specs[4].output =
          roomy
              ->CompileOutput(TenantId(), {OutputConstraint::Kind::kRegex, "([a-z]+ ){90,}", {}},
                              CancelFlag::Never(), MemoryGrant::Unlimited())
              .value();
    }
    // The longest of them in the worst case, and a little more.
    const int64_t pages = (168 + 40) / kPreemptedPage + ranks;
    options.kv_memory_bytes =
        static_cast<size_t>(pages * roomy->model().kv_bytes_per_token * kPreemptedPage);
    change(options);
    const auto engine = Make(options);
    for (int i = 0; i < AnswerLength::kLeastAnswers; ++i) {
      RequestSpec spec;
      spec.prompt = {5, 6, 7};
      spec.sampling.max_tokens = 4;
      EXPECT_TRUE(Submit(*engine, std::move(spec))->Wait().has_value());
    }
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (const RequestSpec& spec : specs) sinks.push_back(Submit(*engine, spec));
    int64_t preemptions = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
      const auto alone = Submit(*roomy, specs[i]);
      const auto expected = alone->Wait();
      const auto done = sinks[i]->Wait();
      EXPECT_TRUE(expected.has_value() && done.has_value());
      if (!expected.has_value() || !done.has_value()) continue;
      EXPECT_TRUE(done->status.ok()) << done->status;
      EXPECT_EQ(sinks[i]->ids(), alone->ids()) << ranks << " ranks, request " << i;
      EXPECT_EQ(sinks[i]->text(), alone->text()) << ranks << " ranks, request " << i;
      EXPECT_EQ(done->digest, expected->digest) << ranks << " ranks, request " << i;
      EXPECT_EQ(done->finish_reason, expected->finish_reason);
      EXPECT_EQ(done->usage.prompt_tokens, expected->usage.prompt_tokens);
      preemptions += done->timings.preemptions;
    }
    return preemptions;
  }

  struct Recovered {
    int64_t times = 0;
    int64_t repaired = 0;  // of these
    int64_t cached = 0;    // tokens with which the requests began
  };
  // The requests have the answers of the sound engine on one whose steps fail as `fails` says.
  // `before`: answered there before the others come.
  Recovered CheckFailing(
      Engine& sound, const EngineOptions& options, const std::vector<RequestSpec>& specs,
      const std::function<std::optional<testing::FailingRanks::Failure>()>& fails,
      const std::vector<RequestSpec>& before = {}) {
    EngineSeams seams{.through_bytes = true};
    seams.wrap_ranks = [&](std::unique_ptr<RankPort> all) {
      return std::make_unique<testing::FailingRanks>(std::move(all), fails);
    };
    auto failing = CreateEngineWith(seams, options, *backend_, registry_);
    EXPECT_TRUE(failing.ok()) << failing.status();
    for (const RequestSpec& spec : before) EXPECT_TRUE(Submit(**failing, spec)->Wait().has_value());
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (const RequestSpec& spec : specs) sinks.push_back(Submit(**failing, spec));
    Recovered recovered;
    for (size_t i = 0; i < specs.size(); ++i) {
      const auto alone = Submit(sound, specs[i]);
      const auto expected = alone->Wait();
      const auto done = sinks[i]->Wait();
      EXPECT_TRUE(expected.has_value() && done.has_value());
      if (!expected.has_value() || !done.has_value()) continue;
      EXPECT_TRUE(done->status.ok()) << done->status;
      EXPECT_EQ(sinks[i]->ids(), alone->ids()) << "request " << i;
      EXPECT_EQ(sinks[i]->text(), alone->text()) << "request " << i;
      EXPECT_EQ(done->digest, expected->digest) << "request " << i;
      EXPECT_EQ(done->finish_reason, expected->finish_reason);
      recovered.times += done->timings.recovered;
      recovered.repaired += done->timings.repaired;
      recovered.cached += done->usage.cached_tokens;
    }
    return recovered;
  }

  // Steps fail at random, one of them without a loss and all others with that of a rank's pages.
  template <typename Change>
  Recovered CheckFailing(const std::string& model, int ranks, uint32_t seed, const Change& change) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << ranks << " ranks");
    const auto sound = Make(Options(model, ranks));
    EngineOptions options = Options(model, ranks);
    options.kv_memory_bytes = 4 << 20;
    change(options);
    std::mt19937 random(seed);
    int steps = 0;
    int next = 1 + static_cast<int>(random() % 20);
    bool loses = false;
    const auto fails = [&]() -> std::optional<testing::FailingRanks::Failure> {
      if (++steps < next) return std::nullopt;
      next += 1 + static_cast<int>(random() % 60);
      testing::FailingRanks::Failure failure;
      if (std::exchange(loses, true)) failure.lost = {static_cast<int32_t>(random() % ranks)};
      return failure;
    };
    std::vector<RequestSpec> specs =
        Specs(sound->model().vocabulary, /*has_text=*/!model.starts_with("random:"));
    for (RequestSpec& spec : specs) spec.sampling.seed = *spec.sampling.seed + seed;
    return CheckFailing(*sound, options, specs, fails);
  }
  // Enough for 100 answers on three rings.
  static std::vector<uint32_t> FailingSeeds() {
    return testing::SeedsFrom(static_cast<uint32_t>(testing::TestSeed()), kSanitized ? 1 : 7);
  }

  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
  AttentionAssignment attention_;  // of the requests; dense
};

TEST_F(PreemptedBitsTest, OfATrainedModel) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory.has_value()) GTEST_SKIP() << "the test data is absent";
  for (const int ranks : {1, 2, 4}) {
    EXPECT_GT(Check(directory->string(), ranks, [](EngineOptions&) {}), 0) << ranks << " ranks";
  }
}

// Pages go to the host's memory, and come back for those that reading them is faster for.
TEST_F(PreemptedBitsTest, WithPagesInHostMemory) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory.has_value()) GTEST_SKIP() << "the test data is absent";
  for (const int ranks : {1, 2}) {
    const auto host = [](EngineOptions& options) { options.kv_host_bytes = 4 << 20; };
    EXPECT_GT(Check(directory->string(), ranks, host), 0) << ranks << " ranks";
  }
}

TEST_F(PreemptedBitsTest, OfAModelWithWindowsAndSinks) {
  const testing::TempDirectory folder;
  const std::string model = testing::WindowedModel(folder);
  // 14 pages a rank, of which the longest request takes 11 in the worst case.
  EXPECT_GT(Check(model, 2, [](EngineOptions& options) { options.kv_memory_bytes = 112 << 10; }),
            0);
}

TEST_F(PreemptedBitsTest, AfterStepsOfATrainedModelThatFailed) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory.has_value()) GTEST_SKIP() << "the test data is absent";
  for (const int ranks : {1, 2, 4}) {
    for (const uint32_t seed : FailingSeeds()) {
      const auto none = [](EngineOptions&) {};
      const Recovered recovered = CheckFailing(directory->string(), ranks, seed, none);
      EXPECT_GT(recovered.times, 5);
      EXPECT_GT(recovered.repaired, 0);
    }
  }
}

// They go on under the policy that they began with, whose rows attend the same keys in any chunk.
TEST_F(PreemptedBitsTest, AfterStepsWithAWindowPolicyThatFailed) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory.has_value()) GTEST_SKIP() << "the test data is absent";
  attention_ = AttentionPolicy{.kind = PolicyKind::kWindow,
                               .block = kPreemptedPage,
                               .sinks = kPreemptedPage,
                               .window = 2 * kPreemptedPage};
  for (const int ranks : {1, 2}) {
    for (const uint32_t seed : FailingSeeds()) {
      EXPECT_GT(CheckFailing(directory->string(), ranks, seed, [](EngineOptions&) {}).times, 5);
    }
  }
}

// Pages that a rank lost are not read back as if they were right.
TEST_F(PreemptedBitsTest, AfterStepsThatFailedWithPagesInHostMemory) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory.has_value()) GTEST_SKIP() << "the test data is absent";
  if (kThreadSanitizer) GTEST_SKIP() << "pages are overwritten while they are copied";
  for (const uint32_t seed : FailingSeeds()) {
    const auto host = [](EngineOptions& options) { options.kv_host_bytes = 4 << 20; };
    EXPECT_GT(CheckFailing(directory->string(), 2, seed, host).times, 5);
  }
}

TEST_F(PreemptedBitsTest, AfterStepsOfAModelWithWindowsThatFailed) {
  const testing::TempDirectory folder;
  const std::string model = testing::WindowedModel(folder);
  for (const uint32_t seed : FailingSeeds()) {
    EXPECT_GT(CheckFailing(model, 2, seed, [](EngineOptions&) {}).times, 5);
  }
}

// Any one and any two of four, in the prompts, in the answers, and while these are repaired.
TEST_F(PreemptedBitsTest, AfterRanksHaveLostTheirPages) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory.has_value()) GTEST_SKIP() << "the test data is absent";
  constexpr int kOfFour = 4;
  std::vector<std::pair<int32_t, int32_t>> all_lost;
  for (int32_t first = 0; first < kOfFour; ++first) {
    for (int32_t second = first; second < kOfFour; ++second) all_lost.emplace_back(first, second);
  }
  all_lost = testing::ThinnedIfSanitized(all_lost, 1);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    EngineOptions options = Options(directory->string(), kOfFour);
    options.kv_dtype = dtype;
    const auto sound = Make(options);
    const std::vector<RequestSpec> specs = Specs(sound->model().vocabulary, /*has_text=*/true);
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      options.ring_mode = mode;
      for (const auto& [first, second] : all_lost) {
        SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << ", "
                                          << (mode == RingMode::kPassQ ? "pass-Q" : "pass-KV")
                                          << ", ranks " << first << " and " << second);
        int steps = 0;
        const std::vector<int32_t> lost = {first, second};
        const auto fails = [&]() -> std::optional<testing::FailingRanks::Failure> {
          ++steps;
          if (steps != 3 && steps != 50 && steps != 51) return std::nullopt;
          return testing::FailingRanks::Failure{.lost = lost};
        };
        const Recovered recovered = CheckFailing(*sound, options, specs, fails);
        EXPECT_GT(recovered.times, 10);
        EXPECT_EQ(recovered.repaired, recovered.times);
      }
    }
  }
}

// Requests that share cached pages, which are lost while they read their prompts, while they
// answer, and again before all of them are there.
TEST_F(PreemptedBitsTest, AfterRanksHaveLostSharedPages) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory.has_value()) GTEST_SKIP() << "the test data is absent";
  constexpr int32_t kCommon = 6 * kPreemptedPage;
  EngineOptions options = Options(directory->string(), 4);
  const auto sound = Make(options);
  std::vector<RequestSpec> specs = Specs(sound->model().vocabulary, /*has_text=*/true);
  for (RequestSpec& spec : specs) {
    std::vector<int32_t> common(kCommon);
    for (int32_t i = 0; i < kCommon; ++i) common[i] = 3 + i * 41 % 500;
    spec.prompt.insert(spec.prompt.begin(), common.begin(), common.end());
  }
  std::vector<RequestSpec> before = {specs[0]};
  before[0].sampling.max_tokens = 1;
  for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
    options.ring_mode = mode;
    for (const int32_t lost : testing::ThinnedIfSanitized<int32_t>({0, 1, 2, 3}, 2)) {
      SCOPED_TRACE(::testing::Message()
                   << (mode == RingMode::kPassQ ? "pass-Q" : "pass-KV") << ", rank " << lost);
      int steps = 0;
      const auto fails = [&]() -> std::optional<testing::FailingRanks::Failure> {
        ++steps;
        if (steps != 5 && steps != 60 && steps != 61) return std::nullopt;
        return testing::FailingRanks::Failure{.lost = {lost}};
      };
      const Recovered recovered = CheckFailing(*sound, options, specs, fails, before);
      EXPECT_GT(recovered.times, 10);
      EXPECT_EQ(recovered.repaired, recovered.times);
      EXPECT_GE(recovered.cached, std::ssize(specs) * kCommon);
    }
  }
}

}  // namespace
}  // namespace annulus
