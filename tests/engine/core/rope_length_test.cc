// Models whose rotary frequencies depend on length, through the whole engine: the prompt alone
// settles them.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_seams.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/golden.h"
#include "tests/support/plain_options.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using testing::CollectingSink;

constexpr char kPlainTokenizer[] = R"({
  "added_tokens": [], "normalizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
  "pre_tokenizer": null,
  "model": {"type": "BPE", "merges": [], "vocab": {"a": 3, "b": 4}}})";

class RopeLength : public ::testing::TestWithParam<const char*> {
 protected:
  RopeLength() : golden_(testing::TestFile(std::string("golden/") + GetParam())) {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::create_symlink(golden_ / name, directory_.path() / name);
    }
    directory_.Write("tokenizer.json", kPlainTokenizer);
    RegisterCpuKernels(registry_);
    EngineOptions options = testing::PlainOptions();
    options.model = directory_.path().string();
    options.ranks = 2;
    options.threads = 2;
    options.kv_memory_bytes = 64 << 20;
    options.page_tokens = 16;
    options.weights_dtype = DType::kF32;
    options.max_context = 200;
    auto engine = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  struct Answer {
    std::vector<int32_t> ids;
    std::string factors;
    int64_t cached = 0;
  };
  Answer Ask(const std::vector<int32_t>& prompt, int max_tokens) {
    RequestSpec spec;
    spec.prompt = prompt;
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.ignore_eos = true;
    auto sink = std::make_shared<CollectingSink>();
    EXPECT_TRUE(engine_->Submit(std::move(spec), sink).ok());
    const auto done = sink->Wait();
    EXPECT_TRUE(done.has_value() && done->status.ok());
    return {sink->ids(), done->rope_factors, done->usage.cached_tokens};
  }

  const std::filesystem::path golden_;
  testing::TempDirectory directory_;
  std::unique_ptr<Backend> backend_ = CreateCpuBackend().value();
  KernelRegistry registry_;
  std::unique_ptr<Engine> engine_;
};

std::vector<int32_t> FirstOf(const std::vector<int32_t>& ids, size_t count) {
  return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)};
}

// The short prompt's answer goes past the original context of 100 tokens and keeps its frequencies.
TEST_P(RopeLength, HowManyTokensAreAskedForChangesNone) {
  const testing::Golden small = testing::LoadGolden(golden_, "_short");
  ASSERT_LT(small.prompt.size(), 100u);
  ASSERT_GT(small.prompt.size() + small.greedy.size(), 100u);
  for (const size_t count : {size_t{1}, size_t{20}, size_t{21}, small.greedy.size()}) {
    const Answer answer = Ask(small.prompt, static_cast<int>(count));
    EXPECT_EQ(answer.ids, FirstOf(small.greedy, count));
    EXPECT_EQ(answer.factors, "short");
  }
  const testing::Golden large = testing::LoadGolden(golden_);
  for (const size_t count : {size_t{1}, size_t{50}}) {
    const Answer answer = Ask(large.prompt, static_cast<int>(count));
    EXPECT_EQ(answer.ids, FirstOf(large.greedy, count));
    EXPECT_EQ(answer.factors, "long");
  }
}

// Keys rotated by other frequencies serve nobody else.
TEST_P(RopeLength, ShortAndLongPromptsShareNoPages) {
  const testing::Golden large = testing::LoadGolden(golden_);
  const std::vector<int32_t> beginning = FirstOf(large.prompt, 97);
  const std::vector<int32_t> ids = Ask(beginning, 8).ids;
  Answer answer = Ask(large.prompt, 40);
  EXPECT_EQ(answer.cached, 0);
  EXPECT_EQ(answer.ids, FirstOf(large.greedy, 40));
  answer = Ask(large.prompt, 50);
  EXPECT_EQ(answer.cached, 144);
  EXPECT_EQ(answer.ids, FirstOf(large.greedy, 50));
  answer = Ask(beginning, 8);
  EXPECT_EQ(answer.cached, 96);
  EXPECT_EQ(answer.ids, ids);
}

INSTANTIATE_TEST_SUITE_P(All, RopeLength, ::testing::Values("phi3_longrope", "llama_dynamic"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace annulus
