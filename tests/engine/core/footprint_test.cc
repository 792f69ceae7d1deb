// Nothing grows with the square of a prompt: what the heap, the pools and the kernels' workspace
// hold at their peak, over the prompt's length.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/counting_heap.h"
#include "tests/support/plain_options.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using testing::HeapBytes;
using testing::TakeHeapBytesMost;

struct Footprint {
  int64_t heap = 0;                     // most bytes beyond those of the idle engine
  int64_t workspace = 0;                // of kernels
  std::map<std::string, double> pools;  // most bytes held, but for pages
};

// The middle layer of this model computes every row against all before it. Plans do not go through
// bytes, which are no part of the footprint.
Footprint Measure(int tokens, int ranks, RingMode mode) {
  const auto backend = CreateCpuBackend().value();
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  EngineOptions options = testing::PlainOptions();
  options.model = "builtin:recall3";
  options.ranks = ranks;
  options.threads = ranks;
  options.chunk_tokens = 256;
  options.tokens_per_rank = 256;
  options.ring_mode = mode;
  options.kv_memory_bytes = size_t{128} << 20;
  options.kv_dtype = DType::kBF16;
  auto engine = CreateEngine(options, *backend, registry).value();
  RequestSpec spec;
  spec.prompt.assign(tokens, 'x');
  spec.sampling.temperature = 0;
  spec.sampling.max_tokens = 4;
  auto sink = std::make_shared<CollectingSink>();
  const int64_t idle = HeapBytes();
  TakeHeapBytesMost();
  EXPECT_TRUE(engine->Submit(std::move(spec), sink).ok());
  const std::optional<Completion> done = sink->Wait();
  EXPECT_TRUE(done.has_value() && done->status.ok());
  Footprint footprint;
  footprint.heap = TakeHeapBytesMost() - idle;
  footprint.workspace = engine->Load().memory.workspace;
  for (const MetricFamily& family : engine->Metrics()) {
    if (family.name != "annulus_pool_high_water_bytes") continue;
    for (const MetricSample& sample : family.samples) {
      const std::string& pool = sample.labels[0].second;
      if (pool.find("pages") == std::string::npos) footprint.pools[pool] = sample.value;
    }
  }
  return footprint;
}

TEST(Footprint, TwiceThePromptTakesTwiceTheHeapAndNoMoreBuffers) {
  for (const int ranks : {1, 3}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, mode " << static_cast<int>(mode));
      constexpr int kTokens = 3000;
      const Footprint once = Measure(kTokens, ranks, mode);
      const Footprint twice = Measure(2 * kTokens, ranks, mode);
      ASSERT_EQ(once.pools.size(), static_cast<size_t>(ranks));
      EXPECT_EQ(twice.pools, once.pools);
      EXPECT_EQ(twice.workspace, once.workspace);
      EXPECT_GT(once.workspace, 0);
      // A bit for each pair of tokens would be 4.5 million bytes, a byte for each pair of a token
      // and a page half a million. Linear are the ids (three copies at 4 bytes), page tables (one
      // for each rank and one more) and prefixes: under 80 bytes a token.
      EXPECT_GE(twice.heap, 2 * kTokens * int64_t{12});
      EXPECT_LE(twice.heap - once.heap, kTokens * int64_t{80});
    }
  }
}

}  // namespace
}  // namespace annulus
