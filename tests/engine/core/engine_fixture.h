#ifndef ANNULUS_TESTS_ENGINE_CORE_ENGINE_FIXTURE_H_
#define ANNULUS_TESTS_ENGINE_CORE_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bench/demo/document.h"
#include "engine/api.h"
#include "engine/engine_seams.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/eventually.h"
#include "tests/support/plain_options.h"

namespace annulus::testing {

// Engines with the builtin recall model.
class EngineFixture : public ::testing::Test {
 protected:
  EngineFixture() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  static EngineOptions Options(int ranks = 2) {
    EngineOptions options = PlainOptions();
    options.ranks = ranks;
    options.threads = ranks;
    options.kv_memory_bytes = 256 << 20;
    options.chunk_tokens = 512;
    options.tokens_per_rank = 256;
    return options;
  }

  std::unique_ptr<Engine> Make(const EngineOptions& options, const Clock& clock = Clock::Real()) {
    auto engine =
        CreateEngineWith({.clock = &clock, .through_bytes = true}, options, *backend_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  static RequestSpec Spec(const Engine& engine, const std::string& text, int max_tokens = 64) {
    RequestSpec spec;
    spec.prompt = engine.Tokenize(text, true, CancelFlag::Never()).value();
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = max_tokens;
    return spec;
  }

  static std::shared_ptr<CollectingSink> Start(Engine& engine, RequestSpec spec) {
    auto sink = std::make_shared<CollectingSink>();
    const auto id = engine.Submit(std::move(spec), sink);
    EXPECT_TRUE(id.ok()) << id.status();
    return sink;
  }

  // Waits for the pages of ended requests to be free again.
  static int64_t PagesHeldSoon(const Engine& engine) {
    int64_t held = -1;
    Eventually([&] {
      held = 0;
      for (const RankLoad& rank : engine.Load().ranks) {
        held += rank.kv_bytes_used + rank.memory_bytes.at("kv_reserved");
      }
      return held == 0;
    });
    return held;
  }

  static bench::DemoDocument Document(int64_t bytes, uint64_t seed) {
    bench::DemoOptions options;
    options.bytes = bytes;
    options.seed = seed;
    return bench::MakeDemoDocument(options).value();
  }

  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_CORE_ENGINE_FIXTURE_H_
