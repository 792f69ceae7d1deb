#ifndef ANNULUS_TESTS_ENGINE_PAGES_PAGE_TIER_FIXTURE_H_
#define ANNULUS_TESTS_ENGINE_PAGES_PAGE_TIER_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/api.h"
#include "engine/engine_seams.h"
#include "engine/pages/page_checker.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"
#include "tests/support/plain_options.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::testing {

namespace fs = std::filesystem;

// Engines that keep pages in one folder.
class PageTierFixture : public ::testing::Test {
 protected:
  static constexpr int kPage = 16;

  PageTierFixture() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  std::string disk() const { return (folder_.path() / "pages").string(); }

  EngineOptions Options(const std::string& model, int ranks) const {
    EngineOptions options = PlainOptions();
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

  struct SeamedOptions : EngineOptions {
    EngineSeams seams{.through_bytes = true};
  };

  std::unique_ptr<Engine> Make(const EngineOptions& options, const Clock& clock = Clock::Real()) {
    return Make(SeamedOptions{options}, clock);
  }
  std::unique_ptr<Engine> Make(const SeamedOptions& options, const Clock& clock = Clock::Real()) {
    EngineSeams seams = options.seams;
    seams.clock = &clock;
    auto engine = CreateEngineWith(seams, options, *backend_, registry_);
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

  // The same, with a seed with which that page of those that come back for request `id` is computed
  // again.
  static RequestSpec Checking(RequestSpec spec, int32_t page, int32_t pages, RequestId id) {
    uint64_t seed = 0;
    while (PageChecker::SampledPage(seed, id, pages) != page) ++seed;
    spec.sampling.seed = seed;
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
    return WaitForAnswer(*sink);
  }
  static Answer WaitForAnswer(CollectingSink& sink) {
    const auto done = sink.Wait();
    EXPECT_TRUE(done.has_value() && done->status.ok());
    Answer answer;
    if (!done.has_value()) return answer;
    answer.usage = done->usage;
    answer.ids = sink.ids();
    for (const TokenLogprob& each : sink.logprobs()) {
      answer.bits.push_back(std::bit_cast<uint32_t>(each.logprob));
    }
    return answer;
  }

  // `tier`, `way`: of a family that has one sample for each.
  static double Metric(const Engine& engine, const std::string& name,
                       const std::string& tier = "disk", const std::string& way = "") {
    for (const MetricFamily& family : engine.Metrics()) {
      if (family.name != "annulus_" + name) continue;
      for (const MetricSample& sample : family.samples) {
        const auto is_other = [&](const auto& label) {
          return (label.first == "tier" && label.second != tier) ||
                 (label.first == "way" && label.second != way);
        };
        if (std::none_of(sample.labels.begin(), sample.labels.end(), is_other)) return sample.value;
      }
    }
    ADD_FAILURE() << name << " is missing";
    return 0;
  }

  // Waits until the store has so many pages.
  static bool WaitForPages(const Engine& engine, double pages, const std::string& tier = "disk") {
    return Eventually([&] { return Metric(engine, "kv_tier_pages", tier) >= pages; });
  }

  // Waits until all that was offered to the tier is there, or never will be.
  static bool WaitForWrites(const Engine& engine, const std::string& tier = "disk") {
    return Eventually([&] { return Metric(engine, "kv_tier_waiting_pages", tier) == 0; });
  }

  // Waits until the store is off.
  static bool WaitUntilOff(const Engine& engine, const std::string& tier = "disk") {
    return Eventually([&] { return Metric(engine, "kv_tier_up", tier) == 0; });
  }

  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& each : fs::directory_iterator(disk())) {
      if (each.path().extension() == ".page") files.push_back(each.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  TempDirectory folder_;
  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
};

// As a file of the test data says, but for what `change` changes.
template <typename Change>
std::string RandomModel(const TempDirectory& folder, const std::string& file,
                        const Change& change) {
  std::ifstream stream(TestFile(file));
  nlohmann::json config = nlohmann::json::parse(stream);
  config["vocab_size"] = 300;
  change(config);
  folder.Write("config.json", config.dump());
  return "random:" + (folder.path() / "config.json").string();
}

// Every token sees all before it, in every layer: builtin:recall has a window.
inline std::string WithoutWindows(const TempDirectory& folder) {
  return RandomModel(folder, "golden/llama_mha/config.json", [](nlohmann::json&) {});
}

// Computing a page takes far longer than reading it from a disk. Sanitizers make computing slower
// than reading, so half of the width does there.
inline void MakeSlowToCompute(nlohmann::json& config, int intermediate_per_head) {
  constexpr int kHeads = kSanitized ? 4 : 8;
  config["hidden_size"] = 64 * kHeads;
  config["intermediate_size"] = intermediate_per_head * kHeads;
  config["head_dim"] = 64;
  config["num_attention_heads"] = config["num_key_value_heads"] = kHeads;
}

inline std::string SlowToCompute(const TempDirectory& folder) {
  return RandomModel(folder, "golden/llama_mha/config.json", [](nlohmann::json& config) {
    MakeSlowToCompute(config, 256);
    config["num_hidden_layers"] = 4;
  });
}

// Two groups of layers: most see 17 tokens, the others all.
inline std::string WithWindows(const TempDirectory& folder, bool slow = false) {
  return RandomModel(folder, "golden/llama_windows/config.json", [slow](nlohmann::json& config) {
    if (slow) MakeSlowToCompute(config, 128);
  });
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_PAGES_PAGE_TIER_FIXTURE_H_
