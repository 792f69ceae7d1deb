// Guessing ahead changes no token and no bit of an answer.

#include <memory>
#include <string>
#include <vector>

#include "bench/demo/document.h"
#include "engine/engine_seams.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/plain_options.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CollectingSink;

class SpeculationTest : public ::testing::Test {
 protected:
  SpeculationTest() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  std::unique_ptr<Engine> Make(const std::string& model, int ranks) {
    EngineOptions options = testing::PlainOptions();
    options.model = model;
    options.ranks = ranks;
    options.threads = ranks;
    options.kv_memory_bytes = 64 << 20;
    options.page_tokens = 16;
    options.chunk_tokens = 256;
    options.tokens_per_rank = 100;
    auto engine = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  static RequestSpec Spec(const Engine& engine, const std::string& text, int max_tokens) {
    RequestSpec spec;
    spec.prompt = engine.Tokenize(text, true, CancelFlag()).value();
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.temperature = 0;
    spec.sampling.seed = 3;
    spec.sampling.ignore_eos = true;
    spec.digest = true;
    return spec;
  }

  struct Asked {
    Completion done;
    std::string text;
  };
  static Asked Ask(Engine& engine, RequestSpec spec) {
    auto sink = std::make_shared<CollectingSink>();
    EXPECT_TRUE(engine.Submit(std::move(spec), sink).ok());
    Asked asked;
    const auto done = sink->Wait();
    EXPECT_TRUE(done.has_value() && done->status.ok());
    if (done.has_value()) asked.done = *done;
    asked.text = sink->text();
    return asked;
  }

  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
};

// The recall model quotes its document, so nearly every guess is right.
TEST_F(SpeculationTest, AQuoteComesInFewerStepsWithTheSameDigest) {
  std::string document;
  for (int line = 0; line < 12; ++line) {
    document += "Record " + std::to_string(line) + " of the harbour says: the " +
                std::string(1, static_cast<char>('a' + line)) +
                " buoy was painted, weighed and moored again before the autumn storms came in.\n";
  }
  const std::string prompt = document + "Record 7 of the harbour says: the h buoy was";
  std::string digest;
  for (const int ranks : {1, 3}) {
    const auto engine = Make("builtin:recall", ranks);
    for (const Speculation speculation : {Speculation::kOff, Speculation::kNgram}) {
      RequestSpec spec = Spec(*engine, prompt, 60);
      spec.speculation = speculation;
      const Asked asked = Ask(*engine, std::move(spec));
      EXPECT_EQ(asked.text, " painted, weighed and moored again before the autumn storms ");
      if (digest.empty()) digest = asked.done.digest;
      EXPECT_EQ(asked.done.digest, digest) << ranks << " ranks";
      if (speculation == Speculation::kOff) {
        EXPECT_EQ(asked.done.usage.drafted_tokens, 0);
      } else {
        EXPECT_GT(asked.done.usage.accepted_tokens, 40);
      }
    }
  }
}

// A trained model repeats itself now and then: some guesses are right and some are not.
TEST_F(SpeculationTest, OfATrainedModelEveryWayOfDrawingGivesTheSameDigest) {
  const auto directory = testing::TestData("models/stories260K");
  if (!directory.has_value()) GTEST_SKIP() << "the test data is absent";
  const std::string text =
      "Lily liked to play with her red ball. Lily liked to play in the park. One day Lily";
  int64_t drafted = 0;
  int64_t accepted = 0;
  const std::vector<int> degrees = {1, 2, 4};
  for (const bool draws : {false, true}) {
    std::string digest;
    for (const int ranks : testing::ThinnedIfSanitized(degrees, 2)) {
      const auto engine = Make(directory->string(), ranks);
      for (const Speculation speculation : {Speculation::kOff, Speculation::kNgram}) {
        RequestSpec spec = Spec(*engine, text, 200);
        spec.speculation = speculation;
        if (draws) {
          spec.sampling.temperature = 0.6f;
          spec.sampling.top_p = 0.9f;
          spec.sampling.frequency_penalty = 0.1f;
          spec.sampling.repetition_penalty = 1.05f;
        }
        const Asked asked = Ask(*engine, std::move(spec));
        if (digest.empty()) digest = asked.done.digest;
        EXPECT_EQ(asked.done.digest, digest) << ranks << " ranks, draws " << draws;
        drafted += asked.done.usage.drafted_tokens;
        accepted += asked.done.usage.accepted_tokens;
      }
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(drafted, accepted);
}

}  // namespace
}  // namespace annulus
