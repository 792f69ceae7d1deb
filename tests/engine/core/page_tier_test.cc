// What one engine computed of a prompt, another one finds on disk: the same bits, and nothing of
// another tenant, model or dtype, whatever happened to the files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/api.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;
using testing::CollectingSink;
using ::testing::HasSubstr;

constexpr int kPage = 16;

class PageTierTest : public ::testing::Test {
 protected:
  PageTierTest() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  std::string disk() const { return (folder_.path() / "pages").string(); }

  EngineOptions Options(const std::string& model, int ranks) const {
    EngineOptions options;
    options.model = model;
    options.ranks = ranks;
    options.threads = ranks;
    options.kv_memory_bytes = 64 << 20;
    options.page_tokens = kPage;
    options.chunk_tokens = 64;
    options.tokens_per_rank = 100;
    options.kv_disk = disk();
    options.kv_disk_bytes = 1 << 30;
    return options;
  }

  std::unique_ptr<Engine> Make(const EngineOptions& options) {
    auto engine = CreateEngine(options, *backend_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return engine.ok() ? *std::move(engine) : nullptr;
  }

  static std::vector<int32_t> Prompt(int tokens, int vocabulary, int seed = 3) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int32_t> token(3, vocabulary - 1);
    std::vector<int32_t> prompt;
    while (std::ssize(prompt) < tokens) prompt.push_back(token(random));
    return prompt;
  }

  static RequestSpec Spec(std::vector<int32_t> prompt) {
    RequestSpec spec;
    spec.prompt = std::move(prompt);
    spec.sampling.seed = 7;
    spec.sampling.temperature = 0.9f;
    spec.sampling.ignore_eos = true;
    spec.sampling.logprobs = 3;
    spec.sampling.max_tokens = 12;
    return spec;
  }

  struct Answer {
    std::vector<int32_t> ids;
    std::vector<uint32_t> bits;
    Usage usage;
    friend bool operator==(const Answer& a, const Answer& b) {
      return a.ids == b.ids && a.bits == b.bits;
    }
  };
  static Answer Ask(Engine& engine, RequestSpec spec) {
    auto sink = std::make_shared<CollectingSink>();
    EXPECT_TRUE(engine.Submit(std::move(spec), sink).ok());
    const auto done = sink->Wait();
    EXPECT_TRUE(done.has_value() && done->status.ok());
    Answer answer;
    if (!done.has_value()) return answer;
    answer.usage = done->usage;
    answer.ids = sink->ids();
    for (const TokenLogprob& each : sink->logprobs()) {
      answer.bits.push_back(std::bit_cast<uint32_t>(each.logprob));
    }
    return answer;
  }

  static double Metric(const Engine& engine, const std::string& name) {
    for (const MetricFamily& family : engine.Metrics()) {
      if (family.name == "annulus_" + name) return family.samples.at(0).value;
    }
    ADD_FAILURE() << name << " is missing";
    return 0;
  }

  // Waits until the store has so many pages.
  static bool WaitForPages(const Engine& engine, double pages) {
    for (int i = 0; i < 2000; ++i) {
      if (Metric(engine, "kv_tier_pages") >= pages) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& each : fs::directory_iterator(disk())) {
      if (each.path().extension() == ".page") files.push_back(each.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  // Asks one engine, then others with more ranks and fewer.
  void Check(const std::string& model, double least_pages) {
    EngineOptions off = Options(model, 1);
    off.kv_disk.clear();
    const auto plain = Make(off);
    const std::vector<int32_t> prompt = Prompt(330, plain->model().vocabulary);
    const Answer expected = Ask(*plain, Spec(prompt));
    {
      const auto engine = Make(Options(model, 2));
      const Answer first = Ask(*engine, Spec(prompt));
      EXPECT_EQ(first, expected);
      EXPECT_EQ(first.usage.cached_tokens, 0);
      ASSERT_TRUE(WaitForPages(*engine, least_pages));
      const Answer again = Ask(*engine, Spec(prompt));
      EXPECT_EQ(again.usage.cached_tokens, 320);
      EXPECT_EQ(again.usage.restored_tokens, 0) << "memory has it";
    }
    for (const int ranks : {1, 4, 3}) {
      const auto engine = Make(Options(model, ranks));
      const Answer restored = Ask(*engine, Spec(prompt));
      EXPECT_EQ(restored, expected) << ranks << " ranks";
      EXPECT_EQ(restored.usage.cached_tokens, 320) << ranks << " ranks";
      EXPECT_EQ(restored.usage.restored_tokens, 320) << ranks << " ranks";
      const Answer cached = Ask(*engine, Spec(prompt));
      EXPECT_EQ(cached, expected);
      EXPECT_EQ(cached.usage.restored_tokens, 0);
      EXPECT_EQ(Metric(*engine, "kv_tier_restores_total"), 1);
      EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total"), 0);
      EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
    }
  }

  testing::TempDirectory folder_;
  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
};

// Every token sees all before it, in every layer: builtin:recall has a window.
std::string WithoutWindows(const testing::TempDirectory& folder) {
  std::ifstream file(testing::TestFile("golden/llama_mha/config.json"));
  nlohmann::json config = nlohmann::json::parse(file);
  config["vocab_size"] = 300;
  folder.Write("config.json", config.dump());
  return "random:" + (folder.path() / "config.json").string();
}

std::string Stories() {
  const auto directory = testing::TestData("models/stories260K");
  return directory.has_value() ? directory->string() : "";
}

TEST_F(PageTierTest, AnotherEngineRestoresTheSameBits) {
  if (Stories().empty()) GTEST_SKIP() << "the test data is absent";
  Check(Stories(), 20);
}

TEST_F(PageTierTest, WithWindowsToo) {
  std::ifstream file(testing::TestFile("golden/gpt_oss/config.json"));
  nlohmann::json config = nlohmann::json::parse(file);
  config["vocab_size"] = 300;
  config.erase("quantization_config");
  folder_.Write("config.json", config.dump());
  Check("random:" + (folder_.path() / "config.json").string(), 20 + 1);
}

TEST_F(PageTierTest, NothingIsAnothersTenantOrDtype) {
  const EngineOptions options = Options("builtin:recall", 1);
  const std::vector<int32_t> prompt = Prompt(200, 250);
  {
    const auto engine = Make(options);
    Ask(*engine, Spec(prompt));
    ASSERT_TRUE(WaitForPages(*engine, 12));
  }
  EngineOptions half = options;
  half.kv_dtype = DType::kF16;
  EXPECT_EQ(Ask(*Make(half), Spec(prompt)).usage.restored_tokens, 0);
  EngineOptions larger = options;
  larger.model = "builtin:recall3";
  EXPECT_EQ(Ask(*Make(larger), Spec(prompt)).usage.restored_tokens, 0);
  const auto engine = Make(options);
  RequestSpec stranger = Spec(prompt);
  stranger.tenant = *TenantId::FromName("stranger");
  EXPECT_EQ(Ask(*engine, std::move(stranger)).usage.restored_tokens, 0);
  RequestSpec sparse = Spec(prompt);
  sparse.attention = *ParseAssignment("window:sinks=16,window=64");
  EXPECT_EQ(Ask(*engine, std::move(sparse)).usage.restored_tokens, 192) << "dense serves all";
  EXPECT_EQ(Ask(*engine, Spec(Prompt(200, 250, 4))).usage.restored_tokens, 0);
}

// Pages that were broken, or have gone, are computed again; the rest is restored.
TEST_F(PageTierTest, BrokenPagesAreComputed) {
  const EngineOptions options = Options("builtin:recall", 2);
  const std::vector<int32_t> prompt = Prompt(200, 250);
  Answer expected;
  {
    const auto engine = Make(options);
    expected = Ask(*engine, Spec(prompt));
    ASSERT_TRUE(WaitForPages(*engine, 12));
  }
  for (const bool remove : {false, true}) {
    for (int round = 0; round < 3; ++round) {
      std::mt19937 random(round);
      for (const fs::path& path : Files()) {
        if (random() % 4 != 0) continue;
        if (remove) {
          fs::remove(path);
          continue;
        }
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(random() % fs::file_size(path)));
        file.put('\x5a');
      }
      const auto engine = Make(options);
      const Answer answer = Ask(*engine, Spec(prompt));
      EXPECT_EQ(answer, expected) << remove << " " << round;
      EXPECT_LT(answer.usage.restored_tokens, 192);
      EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
      ASSERT_TRUE(WaitForPages(*engine, 12)) << "what was missing is written again";
    }
  }
}

// A prompt that was not read to its end leaves what it had.
TEST_F(PageTierTest, AnUnfinishedPromptGoesOnWhereItWas) {
  const EngineOptions options = Options(WithoutWindows(folder_), 1);
  const std::vector<int32_t> prompt = Prompt(6000, 250);
  EngineOptions off = options;
  off.kv_disk.clear();
  const Answer expected = Ask(*Make(off), Spec(prompt));
  {
    const auto engine = Make(options);
    auto sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(engine->Submit(Spec(prompt), sink).ok());
    ASSERT_TRUE(WaitForPages(*engine, 40));
  }
  const Answer answer = Ask(*Make(options), Spec(prompt));
  EXPECT_EQ(answer, expected);
  EXPECT_GE(answer.usage.restored_tokens, 40 * kPage);
}

// Where memory has the beginning, only the rest comes back.
TEST_F(PageTierTest, MemoryAndDiskTogether) {
  const EngineOptions options = Options(WithoutWindows(folder_), 1);
  const std::vector<int32_t> prompt = Prompt(320, 250);
  const std::vector<int32_t> half(prompt.begin(), prompt.begin() + 161);
  Answer expected;
  {
    const auto engine = Make(options);
    expected = Ask(*engine, Spec(prompt));
    ASSERT_TRUE(WaitForPages(*engine, 20));
  }
  const auto engine = Make(options);
  EXPECT_EQ(Ask(*engine, Spec(half)).usage.restored_tokens, 160);
  const Answer answer = Ask(*engine, Spec(prompt));
  EXPECT_EQ(answer, expected);
  EXPECT_EQ(answer.usage.cached_tokens, 160 + answer.usage.restored_tokens);
  // By now it knows how long both ways take, and either may be the shorter.
  EXPECT_THAT(answer.usage.restored_tokens, ::testing::AnyOf(304 - 160, 0));
}

TEST_F(PageTierTest, ManyAtOnceRestoreOrWait) {
  const EngineOptions options = Options("builtin:recall", 2);
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 6; ++i) prompts.push_back(Prompt(150 + 16 * i, 250, 20 + i));
  std::vector<Answer> expected;
  {
    const auto engine = Make(options);
    int pages = 0;
    for (const auto& prompt : prompts) {
      expected.push_back(Ask(*engine, Spec(prompt)));
      pages += static_cast<int>(prompt.size()) / kPage;
    }
    ASSERT_TRUE(WaitForPages(*engine, pages));
  }
  const auto engine = Make(options);
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int turn = 0; turn < 3; ++turn) {
    for (const auto& prompt : prompts) {
      sinks.push_back(std::make_shared<CollectingSink>());
      ASSERT_TRUE(engine->Submit(Spec(prompt), sinks.back()).ok());
    }
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    const auto done = sinks[i]->Wait();
    ASSERT_TRUE(done.has_value() && done->status.ok()) << i;
    EXPECT_EQ(sinks[i]->ids(), expected[i % prompts.size()].ids) << i;
  }
  EXPECT_GT(Metric(*engine, "kv_tier_hits_total"), 0);
}

TEST_F(PageTierTest, WhatCannotBeIsRefusedAtTheStart) {
  EngineOptions options = Options("builtin:recall", 1);
  options.kv_disk_bytes = 0;
  auto engine = CreateEngine(options, *backend_, registry_);
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("kv-disk-size"));
  options = Options("builtin:recall", 1);
  const auto first = Make(options);
  engine = CreateEngine(options, *backend_, registry_);
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("another daemon"));
}

}  // namespace
}  // namespace annulus
